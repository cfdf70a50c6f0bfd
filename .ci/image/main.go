// Command image makes a container image of one static program, as an archive
// that `docker load` takes: the program, authorities, time zones, and nothing
// else. It needs no Docker.
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
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	authorities = "/etc/ssl/certs/ca-certificates.crt"
	zones       = "/usr/share/zoneinfo"
)

func main() {
	out := flag.String("o", "brig-image.tar", "the `file` to write")
	flag.Parse()
	if err := build(flag.Arg(0), *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the image of a program.
func build(program, out string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	var system, own bytes.Buffer
	s := tar.NewWriter(&system)
	if err := errors.Join(
		folder(s, "var/lib/brig/", 0o700, made), folder(s, "tmp/", 0o1777, made),
		text(s, "etc/passwd", "root:x:0:0:root:/var/lib/brig:/sbin/nologin\n", made),
		file(s, authorities, authorities, 0o644, made), tree(s, zones, made), s.Close(),
	); err != nil {
		return err
	}
	o := tar.NewWriter(&own)
	if err := errors.Join(file(o, program, "usr/bin/brig", 0o755, made), o.Close()); err != nil {
		return err
	}
	img, err := layered(system.Bytes(), own.Bytes())
	if err != nil {
		return err
	}
	img, err = mutate.ConfigFile(img, config(img, made))
	if err != nil {
		return err
	}
	ref, err := name.NewTag("brig:latest")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, img)
}

// layered makes an image of layers, the lowest first.
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

// config is how the image is started.
func config(img v1.Image, made time.Time) *v1.ConfigFile {
	c := &v1.ConfigFile{}
	if old, err := img.ConfigFile(); err == nil {
		c = old.DeepCopy()
	}
	c.Created, c.OS, c.Architecture = v1.Time{Time: made}, "linux", runtime.GOARCH
	for i := range c.History {
		c.History[i].Created = v1.Time{Time: made}
	}
	c.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/brig"}, Cmd: []string{"serve", "--listen", "0.0.0.0:2744"},
		Env:          []string{"PATH=/usr/bin", "BRIG_DATA_DIR=/var/lib/brig", "SSL_CERT_FILE=" + authorities},
		Volumes:      map[string]struct{}{"/var/lib/brig": {}},
		ExposedPorts: map[string]struct{}{"2744/tcp": {}},
		WorkingDir:   "/var/lib/brig",
	}
	return c
}

func folder(w *tar.Writer, name string, mode int64, made time.Time) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, ModTime: made})
}

func text(w *tar.Writer, name, body string, made time.Time) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body)), ModTime: made}); err != nil {
		return err
	}
	_, err := io.WriteString(w, body)
	return err
}

// file adds what from is, links followed.
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

// tree adds the files below a folder, without those of it that only repeat them
// with leap seconds.
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
