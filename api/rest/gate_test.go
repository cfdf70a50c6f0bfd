package rest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

// No route reads a body before the caller has been authorized. The test uses the route table,
// so that it covers new routes automatically.
func TestRoutesAuthorizeBeforeReading(t *testing.T) {
	a := newAPI(Options{})
	var all []transcript.AuthorizedRequest
	for _, rt := range a.routes() {
		ok := rt.op.Name != ""
		if has := rt.in != nil || rt.archive || rt.octets; has != ok {
			t.Errorf("%s takes a body: %v, and has an operation: %v", rt.id, has, ok)
		}
		if !ok {
			continue
		}
		path := strings.NewReplacer("{name}", "one", "{id}", "x", "{pid}", "7", "{version}", "1", "{digest}", "aa").Replace(rt.pattern)
		one := transcript.AuthorizedRequest{Method: rt.method, Path: path, Role: rt.op.Role}
		switch rt.base() {
		case "write-file", "write-volume-file":
			one.Path, one.Header = path+"?path=a", []string{"Content-Type", "application/octet-stream"}
		case "put-template-files":
			one.Header = []string{"Content-Type", "application/octet-stream"}
		case "import-image":
			one.Path, one.Header = path+"?name=a", []string{"Content-Type", "application/x-tar"}
		}
		if rt.id == "stream-import-image" {
			continue // the route needs a duplex connection, which the recorder does not have
		}
		all = append(all, one)
	}
	if len(all) < 25 {
		t.Fatalf("%d routes take a body", len(all))
	}
	transcript.CheckAuthorization(t, New(Options{Service: bodyReader{}, Builds: templateBodyReader{}, Keys: transcript.RoleKeys{}, Hosts: []string{"example.com"}}), all)
}

// bodyReader is a Service that reads its input and does nothing else.
type bodyReader struct{ brig.Service }

// GetTenant returns a tenant, because a change is decoded over the current
// value.
func (bodyReader) GetTenant(_ context.Context, name string) (*brig.Tenant, error) {
	return &brig.Tenant{Name: name}, nil
}

func (bodyReader) Files(string) brig.Files { return bodyReaderFiles{} }

type bodyReaderFiles struct{ brig.Files }

func (bodyReaderFiles) Write(_ context.Context, _ brig.Path, _ brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	_, err := r.Read(make([]byte, 1))
	return &brig.Entry{}, err
}

func (bodyReader) VolumeFiles(string) brig.VolumeFiles { return bodyReaderVolume{} }

type bodyReaderVolume struct{ brig.VolumeFiles }

func (bodyReaderVolume) Write(_ context.Context, _ string, _ brig.VolumeWrite, r io.Reader) (*brig.VolumeEntry, error) {
	_, err := r.Read(make([]byte, 1))
	return &brig.VolumeEntry{}, err
}

func (bodyReader) ImportImage(_ context.Context, _ string, r io.Reader, _ func(brig.Progress)) (*brig.Image, error) {
	_, err := r.Read(make([]byte, 1))
	return &brig.Image{}, err
}

// templateBodyReader is a TemplateService that reads its input and does nothing else.
type templateBodyReader struct{ brig.TemplateService }

func (templateBodyReader) PutTemplateFiles(_ context.Context, _ string, _ int64, r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}
