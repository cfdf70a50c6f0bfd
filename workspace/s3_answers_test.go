package workspace_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/workspace"
)

// TestHostileS3ResponsesUseBoundedMemory checks that the client uses a bounded amount of memory for a
// list page or an error that is endless or has very many items. The control is
// the client without limits.
func TestHostileS3ResponsesUseBoundedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		first, again string
		status       int
		control      bool
		size         int // bytes to send; 0 means 96 MiB
	}{
		"many items":   {first: `<ListBucketResult>`, again: `<Contents/>`, status: 200, control: true, size: 4 << 20},
		"many folders": {first: `<ListBucketResult>`, again: `<CommonPrefixes/>`, status: 200},
		"a long key":   {first: `<ListBucketResult><Contents><Key>`, again: "k", status: 200, control: true},
		"blanks":       {first: `<ListBucketResult>`, again: " ", status: 200},
		"a long error": {first: `<Error><Message>`, again: "k", status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					return
				}
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(c.status)
				testenv.WriteEndless(w, c.first, c.again, cmp.Or(c.size, 96<<20))
			}))
			defer srv.Close()
			filePath := srv.Listener.Addr().String()
			list := func() error {
				s, err := workspace.OpenS3(t.Context(), workspace.S3Options{Endpoint: filePath, Insecure: true, Region: "x", Bucket: "bucket", AccessKey: "a", SecretKey: "s"})
				if err != nil {
					return err
				}
				return s.List(t.Context(), "x/", func(string) error { return nil })
			}
			var unbounded func() error
			if c.control {
				unbounded = func() error {
					s, err := minio.New(filePath, &minio.Options{Creds: credentials.NewStaticV4("a", "s", ""), Region: "x"})
					if err != nil {
						return err
					}
					for o := range s.ListObjects(t.Context(), "bucket", minio.ListObjectsOptions{Recursive: true}) {
						err = o.Err
					}
					return err
				}
			}
			// The garbage of a list of items counts, and on a loaded machine the garbage collector
			// is late.
			testenv.CheckEndlessResponse(t, 160<<20, list, unbounded)
		})
	}
}
