package kernels_test

import "crypto/sha256"

func hashKey(k string) [32]byte { return sha256.Sum256([]byte(k)) }
