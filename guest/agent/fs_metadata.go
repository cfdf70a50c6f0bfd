package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// metadataPrefix begins the names of the extended attributes that are a file's
// metadata. Programs in E2B's sandboxes know them by it.
const metadataPrefix = "user.e2b."

// maxMetadata bounds the metadata of one file, in bytes: programs in the
// sandbox can set such attributes, too.
const maxMetadata = 4096

// attributes lists the names of a file's metadata, with their prefix.
func attributes(name string) []string {
	n, err := syscall.Listxattr(name, nil)
	if err != nil || n <= 0 {
		return nil // most files have none, many file systems know none
	}
	b := make([]byte, n)
	if n, err = syscall.Listxattr(name, b); err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Split(string(b[:n]), "\x00"), func(a string) bool {
		return len(a) <= len(metadataPrefix) || !strings.HasPrefix(a, metadataPrefix)
	})
}

// metadata reads a file's metadata, as much as it may be.
func metadata(name string) map[string]string {
	var out map[string]string
	left := maxMetadata
	for _, a := range attributes(name) {
		b := make([]byte, maxMetadata)
		n, err := syscall.Getxattr(name, a, b)
		key := strings.TrimPrefix(a, metadataPrefix)
		if err != nil || n < 0 || len(key)+n > left {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = string(b[:n])
		left -= len(key) + n
	}
	return out
}

// setMetadata makes m all the metadata that an open file has. It goes by the
// descriptor: the name may be another file's by now.
func setMetadata(f *os.File, m map[string]string) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		self := "/proc/self/fd/" + strconv.Itoa(int(fd))
		for _, a := range attributes(self) {
			if _, keep := m[strings.TrimPrefix(a, metadataPrefix)]; !keep {
				_ = syscall.Removexattr(self, a)
			}
		}
		for k, v := range m {
			if failed = syscall.Setxattr(self, metadataPrefix+k, []byte(v), 0); failed != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if failed == syscall.ENOTSUP {
		return badPath("path '%s' is on a file system that keeps no metadata", f.Name())
	}
	return failed
}
