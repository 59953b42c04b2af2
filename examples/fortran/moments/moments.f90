! Sums and sums of squares of each column: what mean and variance are made of.
subroutine moments(points, n, d, sums, squares) bind(c)
  use iso_c_binding
  implicit none
  integer(c_int64_t), value :: n, d
  real(c_double), intent(in) :: points(d, n)
  real(c_double), intent(out) :: sums(d), squares(d)
  integer(c_int64_t) :: i

  sums = 0
  squares = 0
  do i = 1, n
    sums = sums + points(:, i)
    squares = squares + points(:, i)**2
  end do
end subroutine moments
