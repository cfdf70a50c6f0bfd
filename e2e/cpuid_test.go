package e2e

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// askCPUID prints the thread information in CPUID leaf 11, which is empty if gVisor emulates the
// instruction.
const askCPUID = `
import ctypes, mmap
code = bytes.fromhex("53 89f8 89f1 0fa2 89c8 5b c3")  # push rbx; eax = edi; ecx = esi; cpuid; eax = ecx; pop rbx; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)(at)(11, 0))
`

// TestCPUIDIsNotEmulated verifies that CPUID in a sandbox executes on the CPU instead of being
// emulated by gVisor after a fault. Emulation slows the start of programs with shared libraries
// by a quarter.
//
//suite:part core
func TestCPUIDIsNotEmulated(t *testing.T) {
	needRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("there is no CPUID")
	}
	host, err := exec.Command("python3", "-c", askCPUID).Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(host)) == "0" {
		t.Skip("this processor has nothing in the leaf that gVisor hides")
	}
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "cpuid", nil)
	if got := m.sh("user", "python3 -c '"+askCPUID+"'"); got != string(host) {
		t.Errorf("in the sandbox CPUID says %q, on the host %q", got, host)
	}
}
