package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
)

// Whom a program trusts is in a directory of its image, to which an uplink's
// authority has to be added. Where the image is read-only the directory is a
// file system in memory, and what the image has there is carried into it.

// trustDir is that directory.
const trustDir = "/etc/ssl/certs"

// trustOptions are of its file system, and maxTrust is how much of an image's
// may be in it, in bytes: it is there three times while an authority is added.
const (
	trustOptions = "nosuid,nodev,mode=0755,size=16m"
	maxTrust     = 4 << 20
)

// errTrust is what is said of more.
var errTrust = fmt.Errorf("%s has more than %d bytes", trustDir, maxTrust)

// maxTrusts is of how many images it is remembered.
const maxTrusts = 16

// trusted is one thing in the directory.
type trusted struct {
	brig.Node
	data []byte
}

// trustOf reads what an image has in the directory, through a container of it.
func (p *Provider) trustOf(ctx context.Context, image, container string) ([]trusted, error) {
	p.trusting.Lock()
	t, ok := p.trusts[image]
	p.trusting.Unlock()
	if ok {
		return t, nil
	}
	// Some may read it at once, but none waits for another's image.
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	t, err := p.readTrust(ctx, container)
	if err != nil {
		return nil, creationError(fmt.Errorf("read the image's certificates: %w", err))
	}
	p.trusting.Lock()
	defer p.trusting.Unlock()
	if len(p.trusts) >= maxTrusts || p.trusts == nil {
		p.trusts = map[string][]trusted{}
	}
	p.trusts[image] = t
	return t, nil
}

func (p *Provider) readTrust(ctx context.Context, container string) ([]trusted, error) {
	// With a dot, for what a link there leads to.
	got, err := p.api.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: trustDir + "/."})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer got.Content.Close()
	return parseTrust(tar.NewReader(got.Content))
}

// parseTrust reads an archive of the directory. Its links are for programs
// inside to follow.
func parseTrust(r *tar.Reader) (out []trusted, err error) {
	files, total := map[string][]byte{}, int64(0)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if total += int64(512 + len(h.Name) + len(h.Linkname)); total > maxTrust {
			return nil, errTrust
		}
		name := path.Clean(h.Name)
		t := trusted{Node: brig.Node{Path: name, Mode: uint32(h.Mode) & 0o755, Modified: h.ModTime}}
		switch h.Typeflag {
		case tar.TypeDir:
			t.Type = brig.Directory
		case tar.TypeSymlink:
			t.Type, t.Target = brig.Symlink, h.Linkname
		case tar.TypeLink:
			t.Type, t.data = brig.RegularFile, files[path.Clean(h.Linkname)]
		case tar.TypeReg:
			t.Type = brig.RegularFile
			if t.data, err = io.ReadAll(io.LimitReader(r, maxTrust+1)); err != nil {
				return nil, err
			}
			files[name] = t.data
		default:
			continue
		}
		if total += int64(len(t.data)); total > maxTrust {
			return nil, errTrust
		}
		if t.Size = int64(len(t.data)); name != "." && !strings.HasPrefix(name, "../") {
			out = append(out, t)
		}
	}
}

// trust fills the directory.
func (i *instance) trust(ctx context.Context, all []trusted) error {
	err := i.Guest.Unpack(ctx, trustDir, brig.UnpackOptions{User: "root"}, func(put func(brig.Node, io.Reader) error) error {
		for _, t := range all {
			if err := put(t.Node, bytes.NewReader(t.data)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return creationError(fmt.Errorf("bring the image's certificates: %w", err))
	}
	return nil
}
