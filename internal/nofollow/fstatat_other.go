//go:build !amd64

package nofollow

import "syscall"

const sysFstatat = syscall.SYS_FSTATAT
