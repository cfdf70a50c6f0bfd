// Command image builds a container image of a static program for one or more
// architectures. It writes an archive for `docker load` with this machine's
// architecture, and an OCI layout archive with all architectures. The image
// contains only the program, certificate authorities and time zones. The
// command does not need Docker.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	authorities = "/etc/ssl/certs/ca-certificates.crt"
	zones       = "/usr/share/zoneinfo"
)

func main() {
	out := flag.String("o", "brig-image.tar", "the `file` for docker load")
	oci := flag.String("oci", "", "the `file` for an OCI layout of all architectures")
	version := flag.String("version", "latest", "the `version` in the annotations")
	flag.Parse()
	if err := build(flag.Args(), *out, *oci, *version); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the images of programs, each of which is ARCHITECTURE=FILE.
func build(programs []string, out, oci, version string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	system, err := systemLayer(made)
	if err != nil {
		return err
	}
	ref, err := name.NewTag("brig:latest")
	if err != nil {
		return err
	}
	var all []mutate.IndexAddendum
	for _, p := range programs {
		arch, file, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%s: want ARCHITECTURE=FILE", p)
		}
		img, err := imageOf(system, file, arch, version, made)
		if err != nil {
			return err
		}
		if arch == runtime.GOARCH {
			if err := tarball.WriteToFile(out, ref, img); err != nil {
				return err
			}
		}
		all = append(all, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if oci == "" {
		return nil
	}
	return writeLayout(oci, mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...), version, made)
}

// systemLayer returns the layer with the system files that the program needs.
func systemLayer(made time.Time) ([]byte, error) {
	var b bytes.Buffer
	s := tar.NewWriter(&b)
	err := errors.Join(
		folder(s, "var/lib/brig/", 0o700, made), folder(s, "tmp/", 0o1777, made), home(s, made),
		text(s, "etc/passwd", "root:x:0:0:root:/var/lib/brig:/sbin/nologin\nbrig:x:65532:65532:brig:/home/brig:/sbin/nologin\n", made),
		text(s, "etc/group", "root:x:0:\nbrig:x:65532:\n", made),
		file(s, authorities, authorities, 0o644, made), tree(s, zones, made), s.Close(),
	)
	return b.Bytes(), err
}

// imageOf returns the image of a program for an architecture.
func imageOf(system []byte, program, arch, version string, made time.Time) (v1.Image, error) {
	var own bytes.Buffer
	o := tar.NewWriter(&own)
	if err := errors.Join(file(o, program, "usr/bin/brig", 0o755, made), o.Close()); err != nil {
		return nil, err
	}
	img, err := layered(system, own.Bytes())
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, config(img, arch, version, made))
}

// writeLayout writes an OCI layout with one index as an archive.
func writeLayout(out string, index v1.ImageIndex, version string, made time.Time) error {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return file(w, path, filepath.ToSlash(rel), 0o644, made)
	})
	return errors.Join(err, w.Close(), f.Close())
}

// layered creates an image from layers, the lowest first.
func layered(tars ...[]byte) (v1.Image, error) {
	img := v1.Image(empty.Image)
	for _, b := range tars {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// config returns the configuration of the image.
func config(img v1.Image, arch, version string, made time.Time) *v1.ConfigFile {
	c := &v1.ConfigFile{}
	if old, err := img.ConfigFile(); err == nil {
		c = old.DeepCopy()
	}
	c.Created, c.OS, c.Architecture = v1.Time{Time: made}, "linux", arch
	for i := range c.History {
		c.History[i].Created = v1.Time{Time: made}
	}
	c.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/brig"}, Cmd: []string{"serve", "--listen", "0.0.0.0:2744"},
		Env:          []string{"PATH=/usr/bin", "BRIG_DATA_DIR=/var/lib/brig", "SSL_CERT_FILE=" + authorities},
		Volumes:      map[string]struct{}{"/var/lib/brig": {}},
		ExposedPorts: map[string]struct{}{"2744/tcp": {}},
		WorkingDir:   "/var/lib/brig",
		// The server may take a minute to recover the sandboxes of an earlier
		// one.
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/usr/bin/brig", "healthcheck"},
			Interval: 30 * time.Second, Timeout: 10 * time.Second, StartPeriod: time.Minute, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title": "brig", "org.opencontainers.image.version": version,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/brig-run/brig",
		},
	}
	return c
}

func folder(w *tar.Writer, name string, mode int64, made time.Time) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, ModTime: made})
}

// home adds the home directory of the user brig, which contains the data folder.
func home(w *tar.Writer, made time.Time) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "home/brig/", Mode: 0o700, Uid: 65532, Gid: 65532, ModTime: made})
}

func text(w *tar.Writer, name, body string, made time.Time) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: made}); err != nil {
		return err
	}
	_, err := io.WriteString(w, body)
	return err
}

// file adds the file at the path from. Symbolic links are followed.
func file(w *tar.Writer, from, as string, mode int64, made time.Time) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(as, "/"), Mode: mode, Size: int64(len(b)), ModTime: made}); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// tree adds the files below a directory, except for the time zone variants with
// leap seconds.
func tree(w *tar.Writer, dir string, made time.Time) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "right" || d.Name() == "posix"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		return file(w, path, path, 0o644, made)
	})
}
