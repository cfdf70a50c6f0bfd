package gvisor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmounterAddr returns the address of the unmounter's code in this binary.
func unmounterAddr() unsafe.Pointer

// unmounterSize is an upper bound of the length of that code.
const unmounterSize = 128

// unmounter returns the path of a program that unmounts a directory on request,
// like gVisor's "umount" command. A sentry uses this program to unmount /proc
// after the sentry has lost the privilege to unmount. Otherwise the sentry
// would have to re-execute its own large binary. The program is in a sealed
// memfd that this process keeps open.
func unmounter() (string, error) {
	const base = 0x400000
	var b bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phnum: 2,
	}
	code := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Align: 4096}
	stack := elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W)}
	size := binary.Size(header) + binary.Size(code) + binary.Size(stack)
	header.Ehsize, header.Phentsize = uint16(binary.Size(header)), uint16(binary.Size(code))
	header.Phoff = uint64(header.Ehsize)
	header.Entry = base + uint64(size)
	code.Filesz = uint64(size + unmounterSize)
	code.Memsz = code.Filesz
	for _, v := range []any{header, code, stack, unsafe.Slice((*byte)(unmounterAddr()), unmounterSize)} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			return "", fmt.Errorf("make unmounter: %w", err)
		}
	}
	const name, flags = "brig-unmounter", unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // the kernel does not support MFD_EXEC
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return "", fmt.Errorf("make unmounter: %w", err)
	}
	_, err = unix.Write(fd, b.Bytes())
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return "", fmt.Errorf("make unmounter: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}
