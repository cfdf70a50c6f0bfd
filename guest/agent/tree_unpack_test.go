package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

// An unpacked sparse file has the original content, and its holes use no disk space, wherever they
// are.
func TestUnpackKeepsHoles(t *testing.T) {
	const chunk = 64 << 10
	zeros, data := make([]byte, chunk), bytes.Repeat([]byte("d"), 100)
	mixed := append(append(bytes.Clone(zeros), data...), zeros...)
	files := map[string][][]byte{
		"begin": {zeros, zeros, data}, "middle": {data, zeros, zeros, data}, "end": {data, zeros, zeros}, "all": {zeros, zeros},
		"mixed": {mixed, mixed}, "short": {zeros[:3]}, "empty": {},
	}
	var in bytes.Buffer
	frame := func(typ wire.Type, payload []byte) {
		if err := wire.Write(&in, typ, payload); err != nil {
			t.Fatal(err)
		}
	}
	for name, parts := range files {
		b, err := json.Marshal(wire.Node{Path: []byte(name), Type: "file", Mode: 0o600})
		if err != nil {
			t.Fatal(err)
		}
		frame(wire.TypeNode, b)
		for _, p := range parts {
			frame(wire.TypeFileData, p)
		}
		frame(wire.TypeNodeEnd, nil)
	}
	frame(wire.TypeFilesEnd, nil)
	dir := filepath.Join(t.TempDir(), "tree")
	var createMu sync.RWMutex
	if err := unpack(wire.Tree{Dir: dir, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, wire.NewReader(&in), &createMu); err != nil {
		t.Fatal(err)
	}
	used, size := int64(0), 0
	for name, parts := range files {
		want := bytes.Join(parts, nil)
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		used, size = used+st.Blocks*512, size+len(want)
	}
	if used > 64<<10 {
		t.Errorf("files of %d bytes with 700 bytes of data take %d", size, used)
	}
}
