#pragma once
#define BYTES(block, dims) ((block) * (dims) * sizeof(float))
