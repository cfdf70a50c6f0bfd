//go:build !shim

package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentrykernel "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"
)

// completeWrites makes this sentry complete every blocking write to a pipe of the
// host, as Linux does. gVisor itself writes to such a pipe without blocking, and
// returns the number of bytes that fit into the pipe. Programs do not expect short
// writes on a blocking descriptor: Node.js leaves the remaining bytes to its event
// loop, which may not run again. Other system calls may write partially on Linux
// as well (splice), or already complete the write (sendfile).
//
// The overhead for a complete write is one comparison.
func completeWrites(table *sentrykernel.SyscallTable) {
	for number, call := range table.Table {
		switch call.Name {
		case "write":
			call.Fn = completeWrite(call.Fn)
		case "writev", "pwritev", "pwritev2":
			call.Fn = completeVector(call.Fn)
		default:
			continue
		}
		table.Table[number] = call
	}
	table.Init() // copies the functions to the table in which gVisor looks them up
}

// completeWrite wraps write.
func completeWrite(call sentrykernel.SyscallFn) sentrykernel.SyscallFn {
	return func(t *sentrykernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentrykernel.SyscallControl, error) {
		n, control, err := call(t, number, args)
		size := args[2].SizeT()
		if err != nil || n == 0 || n >= uintptr(size) {
			return n, control, err
		}
		return writeRest(t, args[0].Int(), n, func() (usermem.IOSequence, error) {
			return t.SingleIOSequence(args[1].Pointer(), int(size), usermem.IOOpts{})
		}), control, nil
	}
}

// completeVector wraps the system calls that write a vector of buffers without an
// offset. System calls with an offset cannot write to a pipe.
func completeVector(call sentrykernel.SyscallFn) sentrykernel.SyscallFn {
	return func(t *sentrykernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentrykernel.SyscallControl, error) {
		n, control, err := call(t, number, args)
		if err != nil || n == 0 {
			return n, control, err
		}
		return writeRest(t, args[0].Int(), n, func() (usermem.IOSequence, error) {
			return t.IovecsIOSequence(args[1].Pointer(), int(args[2].Int()), usermem.IOOpts{})
		}), control, nil
	}
}

// writeRest writes the bytes of source after the first done bytes, if the descriptor
// refers to a host pipe and is blocking. It returns the total number of bytes written.
// As on Linux, an error or a signal after the first byte only ends the write.
func writeRest(t *sentrykernel.Task, fd int32, done uintptr, source func() (usermem.IOSequence, error)) uintptr {
	file := t.GetFile(fd)
	if file == nil {
		return done // another thread has closed the descriptor
	}
	defer file.DecRef(t)
	if !isHostPipe(t, file) || file.StatusFlags()&linux.O_NONBLOCK != 0 {
		return done
	}
	src, err := source()
	if err != nil {
		return done
	}
	src = src.DropFirst64(int64(done))
	if src.NumBytes() == 0 {
		return done
	}
	room, ch := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
	if file.EventRegister(&room) != nil {
		return done
	}
	defer file.EventUnregister(&room)
	for src.NumBytes() > 0 {
		n, err := file.Write(t, src, vfs.WriteOptions{})
		done += uintptr(n)
		src = src.DropFirst64(n)
		switch {
		case linuxerr.Equals(linuxerr.ErrWouldBlock, err):
			if t.Block(ch) != nil {
				return done
			}
		case err != nil, n == 0:
			return done
		}
	}
	return done
}

// isHostPipe reports whether a file is a pipe of the host.
func isHostPipe(t *sentrykernel.Task, file *vfs.FileDescription) bool {
	if _, ok := file.Impl().(interface{ HostFD() int }); !ok {
		return false
	}
	stat, err := file.Stat(t, vfs.StatOptions{Mask: linux.STATX_TYPE})
	return err == nil && linux.FileMode(stat.Mode).FileType() == linux.S_IFIFO
}
