package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/outbound"
	"github.com/brig-run/brig/internal/sparse"
)

// S3Options configure the bucket and the connection to it.
type S3Options struct {
	// Endpoint is the server's host and port. Insecure selects plain HTTP.
	Endpoint string
	Insecure bool
	Region   string
	// Bucket must exist. Prefix precedes all keys, and only one server may use
	// it.
	Bucket, Prefix string
	// AccessKey and SecretKey are the operator's credentials.
	AccessKey, SecretKey string
	// Staging is a directory for files that are being uploaded; OpenS3 creates it. It needs
	// space for serverStaged bytes. The default is the system's directory for temporary files,
	// which may be a tmpfs.
	Staging string
	// Transport sends the requests. The default does not connect to cloud
	// metadata addresses.
	Transport http.RoundTripper
}

// Limits of a response that is not an object. A page of a list contains up to
// 1,000 keys, each with about a dozen elements. The number of elements is
// limited because a decoded empty element takes a hundred times its encoded
// size in memory.
const (
	maxListing  = 16 << 20 // bytes
	maxElements = 50_000   // XML tags; an element has at most two
)

// errElements means that a response has too many elements.
var errElements = errors.New("the answer has too many elements")

// elements is a reader that fails after left tags.
type elements struct {
	io.Reader
	io.Closer
	remaining int
}

// Read implements io.Reader.
func (e *elements) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if e.remaining -= bytes.Count(p[:n], []byte("<")); e.remaining < 0 {
		return 0, errElements
	}
	return n, err
}

// boundedTransport is a transport that limits responses.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil && (r.Method != http.MethodGet || r.URL.RawQuery != "" || resp.StatusCode >= 300) {
		resp.Body = &elements{io.LimitReader(resp.Body, maxListing), resp.Body, maxElements}
	}
	return resp, err
}

func (o *S3Options) transport() (http.RoundTripper, error) {
	if o.Transport != nil {
		return boundedTransport{o.Transport}, nil
	}
	base, err := minio.DefaultTransport(!o.Insecure)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return boundedTransport{outbound.NewTransport(base, d, brig.CheckConfiguredAddr)}, nil
}

// S3 stores objects in a bucket.
type S3 struct {
	o      S3Options
	client *minio.Client
	holds  holds
}

var _ Objects = (*S3)(nil)

// OpenS3 connects to a bucket, which must exist.
func OpenS3(ctx context.Context, o S3Options) (*S3, error) {
	transport, err := o.transport()
	if err != nil {
		return nil, err
	}
	if o.Staging != "" {
		if err := os.MkdirAll(o.Staging, 0o700); err != nil {
			return nil, err
		}
	}
	client, err := minio.New(o.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""), Secure: !o.Insecure, Region: o.Region, Transport: transport,
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, err
	}
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		o.Prefix += "/"
	}
	exists, err := client.BucketExists(ctx, o.Bucket)
	if err == nil && !exists {
		err = fmt.Errorf("no bucket %q", o.Bucket)
	}
	if err != nil {
		return nil, err
	}
	return &S3{o: o, client: client}, nil
}

// errUnconditional means that the server ignores the condition of a
// conditional write.
var errUnconditional = errors.New("the S3 server ignores If-None-Match: two commits could create the same version, and one would be lost")

// CheckConditional returns an error if the server ignores If-None-Match, which
// commits use to create the record of a version. It checks this by creating an
// object twice.
func (s *S3) CheckConditional(ctx context.Context) error {
	key := "probe/" + strings.ToLower(rand.Text())
	defer func() {
		_ = s.Delete(context.WithoutCancel(ctx), key)
	}()
	// Ignore ErrTaken: the client may have repeated a request whose response
	// was lost.
	if err := s.Create(ctx, key, []byte("first")); err != nil && !errors.Is(err, ErrTaken) {
		return err
	}
	switch err := s.Create(ctx, key, []byte("second")); {
	case err == nil:
		return errUnconditional
	case errors.Is(err, ErrTaken):
		return nil
	default:
		return err
	}
}

// Kind implements Objects.
func (s *S3) Kind() string { return "s3" }

func (s *S3) core() minio.Core { return minio.Core{Client: s.client} }

func (s *S3) fullKey(key string) (string, error) { return s.o.Prefix + key, checkKey(key) }

// httpStatus returns the HTTP status of a failed request, or 0.
func httpStatus(err error) int {
	if resp, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return resp.StatusCode
	}
	return 0
}

func (s *S3) put(ctx context.Context, key string, r io.Reader, size int64, o minio.PutObjectOptions) error {
	key, err := s.fullKey(key)
	if err != nil {
		return err
	}
	o.ContentType = "application/octet-stream"
	_, err = s.client.PutObject(ctx, s.o.Bucket, key, r, size, o)
	return err
}

// Put implements Objects.
func (s *S3) Put(ctx context.Context, key string, data []byte) error {
	return s.put(ctx, key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{})
}

// Create implements Objects.
func (s *S3) Create(ctx context.Context, key string, data []byte) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	err := s.put(ctx, key, bytes.NewReader(data), int64(len(data)), o)
	switch httpStatus(err) {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return ErrTaken
	}
	return err
}

// s3Stage is a file that is being uploaded.
type s3Stage struct {
	sparse.File
	s *S3
}

// Stage implements Objects.
func (s *S3) Stage(context.Context) (Stage, error) {
	f, err := os.CreateTemp(s.o.Staging, "brig-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) // the open descriptor suffices, and the kernel frees the file on close
	return &s3Stage{sparse.File{File: f}, s}, nil
}

// Publish implements Stage. It does not upload a content that already exists,
// because objects in a bucket are always complete.
func (g *s3Stage) Publish(ctx context.Context, key string) error {
	var size int64
	err := g.Fill()
	if err == nil {
		size, err = g.Seek(0, io.SeekEnd)
	}
	if err == nil {
		if there, err := g.s.Size(ctx, key); err == nil && there == size {
			return nil
		}
	}
	if err == nil {
		_, err = g.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return g.s.put(ctx, key, g.File.File, size, minio.PutObjectOptions{})
}

// Abort implements Stage.
func (g *s3Stage) Abort() { _ = g.Close() }

// Get implements Objects.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	key, err := s.fullKey(key)
	if err != nil {
		return nil, err
	}
	r, _, _, err := s.core().GetObject(ctx, s.o.Bucket, key, minio.GetObjectOptions{})
	if httpStatus(err) == http.StatusNotFound {
		return nil, ErrMissing
	}
	return r, err
}

// Size implements Objects.
func (s *S3) Size(ctx context.Context, key string) (int64, error) {
	key, err := s.fullKey(key)
	if err != nil {
		return 0, err
	}
	info, err := s.client.StatObject(ctx, s.o.Bucket, key, minio.StatObjectOptions{})
	if httpStatus(err) == http.StatusNotFound {
		return 0, ErrMissing
	}
	return info.Size, err
}

// List implements Objects.
func (s *S3) List(ctx context.Context, prefix string, f func(key string) error) error {
	whole, err := s.fullKey(prefix)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for o := range s.client.ListObjects(ctx, s.o.Bucket, minio.ListObjectsOptions{Prefix: whole, Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		key := strings.TrimPrefix(o.Key, s.o.Prefix)
		if checkKey(key) != nil {
			continue // not an object of ours
		}
		if err := f(key); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Delete implements Objects.
func (s *S3) Delete(ctx context.Context, key string) error {
	key, err := s.fullKey(key)
	if err != nil {
		return err
	}
	return s.client.RemoveObject(ctx, s.o.Bucket, key, minio.RemoveObjectOptions{})
}

// RemoveAbandoned implements Objects. It removes the parts of incomplete uploads,
// which use space but are not listed.
func (s *S3) RemoveAbandoned(ctx context.Context, prefix string) (n int, err error) {
	whole, err := s.fullKey(prefix)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for u := range s.client.ListIncompleteUploads(ctx, s.o.Bucket, whole, true) {
		if u.Err != nil {
			return n, u.Err
		}
		if checkKey(strings.TrimPrefix(u.Key, s.o.Prefix)) != nil {
			continue // not an object of ours
		}
		if err := s.core().AbortMultipartUpload(ctx, s.o.Bucket, u.Key, u.UploadID); err != nil && httpStatus(err) != http.StatusNotFound {
			return n, err
		}
		n++
	}
	return n, ctx.Err()
}

// Hold implements Objects. It only excludes callers in this process, because a
// prefix belongs to one server.
func (s *S3) Hold(ctx context.Context, key string, exclusive bool) (func(), error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return s.holds.take(ctx, key, exclusive)
}
