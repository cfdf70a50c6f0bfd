package workspace_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig/workspace"
)

// TestS3RejectsMetadataAddress checks that a bucket cannot be at a cloud's metadata address.
func TestS3RejectsMetadataAddress(t *testing.T) {
	_, err := workspace.OpenS3(t.Context(), workspace.S3Options{Endpoint: "169.254.169.254", Insecure: true, Region: "x", Bucket: "bucket", AccessKey: "a", SecretKey: "s"})
	if err == nil || !strings.Contains(err.Error(), "169.254.169.254 is in 169.254.0.0/16") {
		t.Errorf("%v", err)
	}
}

// TestS3EndlessListIsAborted checks that the client stops reading an endless list. As a
// control, the client must have read at least a part of the list.
func TestS3EndlessListIsAborted(t *testing.T) {
	var sent atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>`)
		for range 256 {
			n, err := io.WriteString(w, strings.Repeat(`<Contents><Key>`+strings.Repeat("k", 1000)+`</Key></Contents>`, 1000))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	s, err := workspace.OpenS3(t.Context(), workspace.S3Options{
		Endpoint: srv.Listener.Addr().String(), Insecure: true, Region: "x", Bucket: "bucket", AccessKey: "a", SecretKey: "s",
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.List(t.Context(), "x/", func(string) error { return nil })
	if err == nil || sent.Load() < 1<<20 || sent.Load() > 64<<20 {
		t.Errorf("%d bytes were sent: %v", sent.Load(), err)
	}
}
