package nofollow

import "syscall"

const sysFstatat = syscall.SYS_NEWFSTATAT
