// Undefines what names a 16-bit type.
#undef SAPWOOD_NO_OPERATORS
#undef SAPWOOD_NAME_
#undef SAPWOOD_NAME
#undef SAPWOOD_PREFIX
#undef SAPWOOD_PAIR_OF
#undef SAPWOOD_FORMAT
#undef SAPWOOD_T
#undef SAPWOOD_T2
