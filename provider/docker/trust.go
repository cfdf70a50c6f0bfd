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

// The CA certificates that a program trusts are in a directory of its image.
// The CA of a network link has to be added to that directory. If the image is
// read-only, the directory is a tmpfs into which the image's own files are
// copied.

// trustDir is the directory with the trusted CA certificates.
const trustDir = "/etc/ssl/certs"

// trustOptions are the mount options of the directory's file system. maxTrust
// is the maximum total size of an image's files in that directory, in bytes. It
// allows for three copies, which exist while a CA is added.
const (
	trustOptions = "nosuid,nodev,mode=0755,size=16m"
	maxTrust     = 4 << 20
)

// errTrust is the error for files that exceed maxTrust.
var errTrust = fmt.Errorf("%s has more than %d bytes", trustDir, maxTrust)

// maxTrusts is the maximum number of images whose files are cached.
const maxTrusts = 16

// trustedFile is one file or link in the certificate directory.
type trustedFile struct {
	brig.Node
	data []byte
}

// trustOf reads an image's files in the directory through a container of the
// image.
func (p *Provider) trustOf(ctx context.Context, image, container string) ([]trustedFile, error) {
	p.trusting.Lock()
	t, ok := p.trustCache[image]
	p.trusting.Unlock()
	if ok {
		return t, nil
	}
	// Several callers may read the files concurrently, so that no caller waits
	// for the image of another caller.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	t, err := p.readTrust(ctx, container)
	if err != nil {
		return nil, creationError(fmt.Errorf("read the image's certificates: %w", err))
	}
	p.trusting.Lock()
	defer p.trusting.Unlock()
	if len(p.trustCache) >= maxTrusts || p.trustCache == nil {
		p.trustCache = map[string][]trustedFile{}
	}
	p.trustCache[image] = t
	return t, nil
}

func (p *Provider) readTrust(ctx context.Context, container string) ([]trustedFile, error) {
	// The dot makes the engine follow a link at that path.
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

// parseTrust reads an archive of the directory. It does not follow links,
// because programs in the sandbox follow them.
func parseTrust(r *tar.Reader) (out []trustedFile, err error) {
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
		t := trustedFile{Node: brig.Node{Path: name, Mode: uint32(h.Mode) & 0o755, Modified: h.ModTime}}
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

// installTrustedFiles writes the files into the directory.
func (i *instance) installTrustedFiles(ctx context.Context, all []trustedFile) error {
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
