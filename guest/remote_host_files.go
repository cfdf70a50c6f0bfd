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

// hostFilesRef represents the remote host's own files, which have no digest.
const hostFilesRef = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// HostFiles returns the only image of a remote host: the host's own files.
func HostFiles(ref string) (*brig.Image, error) {
	if ref != brig.HostImage && ref != hostFilesRef {
		e := brig.Errorf(brig.NotFound, "the provider has no images, only the machine's own files").WithHint("leave the image out, or use another provider")
		e.Field = "image"
		return nil, e
	}
	return &brig.Image{Names: []string{brig.HostImage}, Digest: hostFilesRef, Source: brig.HostImage}, nil
}

// ServerMark returns an identifier for this server's instances on a remote
// host, where other servers may use the same account. The identifier is stored
// in the directory dir.
func ServerMark(dir string) (string, error) {
	const size = 16
	file := filepath.Join(dir, "mark")
	if b, err := os.ReadFile(file); err == nil && len(b) == size {
		return string(b), nil
	}
	var b [size / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	m := hex.EncodeToString(b[:])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(file, []byte(m), 0o600); err != nil {
		return "", fmt.Errorf("write mark: %w", err)
	}
	return m, nil
}

// ConfigError returns the error of an invalid configuration.
func ConfigError(fields []brig.FieldError) *brig.Error {
	e := brig.Errorf(brig.InvalidConfig, "%s", fields[0].Message)
	e.Field, e.Fields = fields[0].Field, fields
	return e
}

// NewInstanceOptions returns the options of an instance whose data is in a
// directory of the server. If the instance has its own programs, they come
// first in PATH.
func NewInstanceOptions(id brig.ID, dir string, programs map[string]string) (InstanceOptions, error) {
	if !brig.ValidName(string(id)) {
		return InstanceOptions{}, brig.InvalidField("id", "%q cannot be a sandbox's id", brig.Clip(string(id), 63))
	}
	o := InstanceOptions{ID: id, Dir: filepath.Join(dir, string(id))}
	if len(programs) > 0 {
		o.Path = wire.ProgramsDir + ":" + DefaultPath
	}
	return o, nil
}
