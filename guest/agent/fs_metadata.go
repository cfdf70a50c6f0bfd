package agent

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// metadataPrefixes begin the names of the extended attributes that are a
// file's metadata. The first is what is written: it is E2B's name, by which
// programs in a sandbox set and read metadata themselves. The second is of
// files that were written before it was so.
var metadataPrefixes = []string{"user.e2b.", "user.brig."}

// metadataKey is the key of metadata whose attribute has a name, or empty if
// the attribute is no metadata.
func metadataKey(attribute string) string {
	for _, p := range metadataPrefixes {
		if key, ok := strings.CutPrefix(attribute, p); ok {
			return key
		}
	}
	return ""
}

// maxMetadata bounds the metadata of one file, in bytes: programs in the
// sandbox can set such attributes, too.
const maxMetadata = 4096

// attributes lists the names of a file's metadata, with their prefixes; what
// counts is before what is older.
func attributes(name string) []string {
	n, err := syscall.Listxattr(name, nil)
	if err != nil || n <= 0 {
		return nil // most files have none, many file systems know none
	}
	b := make([]byte, n)
	if n, err = syscall.Listxattr(name, b); err != nil {
		return nil
	}
	names := slices.DeleteFunc(strings.Split(string(b[:n]), "\x00"), func(a string) bool {
		return metadataKey(a) == ""
	})
	slices.SortStableFunc(names, func(a, b string) int { return age(a) - age(b) })
	return names
}

// age is 0 for an attribute of the name that is written, else more.
func age(attribute string) int {
	return slices.IndexFunc(metadataPrefixes, func(p string) bool { return strings.HasPrefix(attribute, p) })
}

// metadata reads a file's metadata, as much as it may be.
func metadata(name string) map[string]string {
	var out map[string]string
	left := maxMetadata
	for _, a := range attributes(name) {
		b := make([]byte, maxMetadata)
		n, err := syscall.Getxattr(name, a, b)
		key := metadataKey(a)
		if _, known := out[key]; known || err != nil || n < 0 || len(key)+n > left {
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
			if _, keep := m[metadataKey(a)]; !keep || age(a) > 0 {
				_ = syscall.Removexattr(self, a)
			}
		}
		for k, v := range m {
			if failed = syscall.Setxattr(self, metadataPrefixes[0]+k, []byte(v), 0); failed != nil {
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
