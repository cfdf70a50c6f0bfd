package rest_test

import (
	"context"
	"io"
	"strings"

	"github.com/brig-run/brig"
)

func (s *stub) volume() *brig.Volume {
	return &brig.Volume{ID: "vol1", Name: "data", Size: brig.GiB, Used: 5, Created: epoch}
}

func (s *stub) CreateVolume(_ context.Context, name string, size int64) (*brig.Volume, error) {
	s.record(name)
	v := s.volume()
	if size != 0 {
		v.Size = size
	}
	return v, nil
}

func (s *stub) Volumes(context.Context) ([]*brig.Volume, error) {
	return []*brig.Volume{s.volume()}, nil
}

func (s *stub) GetVolume(_ context.Context, ref string) (*brig.Volume, error) {
	if s.record(ref); ref == "none" {
		return nil, brig.Errorf(brig.NotFound, "no volume")
	}
	return s.volume(), nil
}

func (s *stub) RemoveVolume(_ context.Context, ref string) error {
	s.record(ref)
	return nil
}

func (s *stub) VolumeFiles(ref string) brig.VolumeFiles { return volumeFilesStub{s, ref} }

// volumeFilesStub is a volume with one file.
type volumeFilesStub struct {
	s   *stub
	ref string
}

func (f volumeFilesStub) entry(path string) *brig.VolumeEntry {
	return &brig.VolumeEntry{
		Name: "a", Path: path, Type: brig.RegularFile, Size: 3, Mode: 0o644, UID: 1000, GID: 1000, Accessed: epoch, Modified: epoch, Changed: epoch,
	}
}

func (f volumeFilesStub) Stat(_ context.Context, path string) (*brig.VolumeEntry, error) {
	f.s.record(f.ref + path)
	return f.entry(path), nil
}

func (f volumeFilesStub) List(_ context.Context, path string, depth int) ([]*brig.VolumeEntry, error) {
	f.s.record(depth)
	return []*brig.VolumeEntry{f.entry(path + "/a")}, nil
}

func (f volumeFilesStub) Read(_ context.Context, path string) (*brig.VolumeEntry, io.ReadCloser, error) {
	if f.s.record(path); path == "/none" {
		return nil, nil, brig.Errorf(brig.NotFound, "no file")
	}
	return f.entry(path), io.NopCloser(strings.NewReader("abc")), nil
}

func (f volumeFilesStub) MakeDir(_ context.Context, path string, o brig.VolumeWrite) (*brig.VolumeEntry, error) {
	f.s.record(o)
	e := f.entry(path)
	e.Type = brig.Directory
	return e, nil
}

func (f volumeFilesStub) Write(_ context.Context, path string, o brig.VolumeWrite, r io.Reader) (*brig.VolumeEntry, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f.s.record(string(b))
	f.s.record(o)
	return f.entry(path), nil
}

func (f volumeFilesStub) SetAttributes(_ context.Context, path string, a brig.VolumeAttributes) (*brig.VolumeEntry, error) {
	f.s.record(a)
	return f.entry(path), nil
}

func (f volumeFilesStub) Remove(_ context.Context, path string) error {
	f.s.record(path)
	return nil
}
