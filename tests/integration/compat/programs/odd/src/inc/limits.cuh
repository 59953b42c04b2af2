#define WIDEST 16
