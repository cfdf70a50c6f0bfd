package guest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// ownFiles stands for the files of the machine that an outpost is on, which have
// no digest.
const ownFiles = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// OwnFiles is the only image of an outpost: the files of the machine it is on.
func OwnFiles(ref string) (*brig.Image, error) {
	if ref != brig.HostImage && ref != ownFiles {
		e := brig.Errorf(brig.NotFound, "there are no images there, only the machine's own files").WithHint("leave the image out, or use another provider")
		e.Field = "image"
		return nil, e
	}
	return &brig.Image{Names: []string{brig.HostImage}, Digest: ownFiles, Source: brig.HostImage}, nil
}

// Mark is what this server's things are known by at an outpost, where others may
// have the same account. It is the same for as long as the server's folder is.
func Mark(dir string) (string, error) {
	const size = 16
	file := filepath.Join(dir, "mark")
	if b, err := os.ReadFile(file); err == nil && len(b) == size {
		return string(b), nil
	}
	var b [size / 2]byte
	_, _ = rand.Read(b[:]) // it never fails
	m := hex.EncodeToString(b[:])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(file, []byte(m), 0o600); err != nil {
		return "", fmt.Errorf("write mark: %w", err)
	}
	return m, nil
}

// Wrong is a configuration that cannot be used.
func Wrong(fields []brig.FieldError) *brig.Error {
	e := brig.Errorf(brig.InvalidConfig, "%s", fields[0].Message)
	e.Field, e.Fields = fields[0].Field, fields
	return e
}

// Options are those of a machine whose files are in a folder of the server's.
// With programs of its own it finds those first.
func Options(id brig.ID, dir string, programs map[string]string) (MachineOptions, error) {
	if !brig.ValidName(string(id)) {
		return MachineOptions{}, brig.InvalidField("id", "%q cannot be a sandbox's id", brig.Clip(string(id), 63))
	}
	o := MachineOptions{ID: id, Dir: filepath.Join(dir, string(id))}
	if len(programs) > 0 {
		o.Path = wire.ProgramsDir + ":" + DefaultPath
	}
	return o, nil
}
