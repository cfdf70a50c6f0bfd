package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options say which bucket, and how it is reached.
type S3Options struct {
	// Endpoint is the server's host and port. Insecure is plain HTTP.
	Endpoint string
	Insecure bool
	Region   string
	// Bucket must be there. Prefix is before all keys, and is one server's own.
	Bucket, Prefix string
	// AccessKey and SecretKey are the operator's.
	AccessKey, SecretKey string
	// Staging is a folder for files on their way to the server. Default the
	// system's for temporary files.
	Staging string
	// Transport is how requests are made. Default the client's own.
	Transport http.RoundTripper
}

// S3 keeps objects in a bucket.
type S3 struct {
	o      S3Options
	client *minio.Client
	holds  holds
}

var _ Objects = (*S3)(nil)

// OpenS3 connects to a bucket, which must be there.
func OpenS3(ctx context.Context, o S3Options) (*S3, error) {
	client, err := minio.New(o.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""), Secure: !o.Insecure, Region: o.Region, Transport: o.Transport,
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		return nil, err
	}
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		o.Prefix += "/"
	}
	there, err := client.BucketExists(ctx, o.Bucket)
	if err == nil && !there {
		err = fmt.Errorf("no bucket %q", o.Bucket)
	}
	if err != nil {
		return nil, err
	}
	return &S3{o: o, client: client}, nil
}

// Kind implements Objects.
func (s *S3) Kind() string { return "s3" }

func (s *S3) key(key string) (string, error) { return s.o.Prefix + key, checkKey(key) }

// status is the server's answer to a request that failed.
func status(err error) int {
	if told, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return told.StatusCode
	}
	return 0
}

func (s *S3) put(ctx context.Context, key string, r io.Reader, size int64, o minio.PutObjectOptions) error {
	key, err := s.key(key)
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
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return ErrTaken
	}
	return err
}

// s3Stage is a file on its way to the bucket.
type s3Stage struct {
	*os.File
	s *S3
}

// Stage implements Objects.
func (s *S3) Stage(context.Context) (Stage, error) {
	f, err := os.CreateTemp(s.o.Staging, "brig-")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name()) // nobody needs its name, and nothing is left of it
	return &s3Stage{File: f, s: s}, nil
}

// Keep implements Stage.
func (g *s3Stage) Keep(ctx context.Context, key string) error {
	size, err := g.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = g.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return g.s.put(ctx, key, g.File, size, minio.PutObjectOptions{})
}

// Drop implements Stage.
func (g *s3Stage) Drop() { _ = g.Close() }

// Get implements Objects.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	key, err := s.key(key)
	if err != nil {
		return nil, err
	}
	core := minio.Core{Client: s.client}
	r, _, _, err := core.GetObject(ctx, s.o.Bucket, key, minio.GetObjectOptions{})
	if status(err) == http.StatusNotFound {
		return nil, ErrMissing
	}
	return r, err
}

// Has implements Objects.
func (s *S3) Has(ctx context.Context, key string) (bool, error) {
	key, err := s.key(key)
	if err != nil {
		return false, err
	}
	_, err = s.client.StatObject(ctx, s.o.Bucket, key, minio.StatObjectOptions{})
	if status(err) == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// List implements Objects.
func (s *S3) List(ctx context.Context, prefix string, f func(key string) error) error {
	whole, err := s.key(prefix)
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
			continue // somebody else put it there
		}
		if err := f(key); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Delete implements Objects.
func (s *S3) Delete(ctx context.Context, key string) error {
	key, err := s.key(key)
	if err != nil {
		return err
	}
	return s.client.RemoveObject(ctx, s.o.Bucket, key, minio.RemoveObjectOptions{})
}

// Hold implements Objects. It holds for this process: a prefix has one server.
func (s *S3) Hold(key string, alone bool) (func(), error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return s.holds.take(key, alone), nil
}
