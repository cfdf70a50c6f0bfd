package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/workspace"
)

// workspacesConfig is the workspaces section of the configuration.
type workspacesConfig struct {
	// Store is local (the default), s3 or none.
	Store string `yaml:"store"`
	// Path is the directory of the local store.
	Path string `yaml:"path"`
	// SaveEvery is the interval at which workspaces in direct mode are saved
	// while their sandboxes run.
	SaveEvery duration `yaml:"save_every"`
	S3        struct {
		Endpoint string `yaml:"endpoint"`
		Insecure bool   `yaml:"insecure"`
		Region   string `yaml:"region"`
		Bucket   string `yaml:"bucket"`
		Prefix   string `yaml:"prefix"`
		// Credentials is a file with two lines: the access key and the secret
		// key.
		Credentials string `yaml:"credentials"`
	} `yaml:"s3"`
}

// These environment variables may contain the S3 credentials.
const (
	s3AccessEnv = "BRIG_S3_ACCESS_KEY"
	s3SecretEnv = "BRIG_S3_SECRET_KEY"
)

func (c *workspacesConfig) check() error {
	switch c.Store {
	case "local", "none":
		return nil
	case "":
		if c.S3.Endpoint != "" || c.S3.Bucket != "" { // otherwise workspaces would silently be stored on this machine
			return brig.Errorf(brig.InvalidConfig, "workspaces.s3 needs workspaces.store: s3").
				WithHint("set workspaces.store to s3, or leave out workspaces.s3")
		}
		return nil
	case "s3":
		if c.S3.Endpoint == "" || c.S3.Bucket == "" {
			return brig.Errorf(brig.InvalidConfig, "workspaces.s3 needs an endpoint and a bucket").
				WithHint("for example {endpoint: \"127.0.0.1:7070\", insecure: true, bucket: brig}")
		}
		return nil
	}
	return brig.Errorf(brig.InvalidConfig, "workspaces.store: %q is not a store", c.Store).WithHint("use local, s3 or none")
}

// openWorkspaces configures an engine's workspace store.
func (c *config) openWorkspaces(ctx context.Context, dir string, o *engine.Options) error {
	w := &c.Workspaces
	switch w.Store {
	case "none":
		return nil
	case "s3":
		access, secret, err := w.credentials()
		if err != nil {
			return err
		}
		s3 := w.s3Options(dir)
		s3.AccessKey, s3.SecretKey = access, secret
		objects, err := workspace.OpenS3(ctx, s3)
		if err != nil {
			return brig.Errorf(brig.NotInitialized, "cannot reach the bucket of workspaces").
				WithHint("check workspaces.s3 and its credentials").Because(err)
		}
		if err := objects.CheckConditional(ctx); err != nil {
			return brig.Errorf(brig.NotInitialized, "the bucket of workspaces cannot create an object only once").
				WithHint("use an S3 server that supports If-None-Match: *, and credentials that may write and delete").Because(err)
		}
		o.Workspaces = workspace.New(objects, nil)
		return nil
	}
	path := w.Path
	if path == "" {
		path = filepath.Join(dir, "workspaces")
	}
	objects, err := workspace.OpenDir(path)
	if err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot read or create the folder of workspaces").
			WithHint("check the owner and mode of the data folder, or workspaces.path").Because(err)
	}
	o.Workspaces = workspace.New(objects, nil)
	return nil
}

// s3Options returns the options of a bucket. Commits are staged in the data folder: the system's
// temporary directory may be small, or a tmpfs.
func (c *workspacesConfig) s3Options(dir string) workspace.S3Options {
	return workspace.S3Options{
		Endpoint: c.S3.Endpoint, Insecure: c.S3.Insecure, Region: c.S3.Region, Bucket: c.S3.Bucket, Prefix: c.S3.Prefix,
		Staging: filepath.Join(dir, "workspaces-staging"),
	}
}

// credentials returns the operator's credentials. No sandbox has access to
// them.
func (c *workspacesConfig) credentials() (access, secret string, err error) {
	if c.S3.Credentials == "" {
		access, secret = os.Getenv(s3AccessEnv), os.Getenv(s3SecretEnv)
		_ = os.Unsetenv(s3SecretEnv) // child processes must not inherit it
		return access, secret, nil
	}
	b, err := os.ReadFile(c.S3.Credentials)
	if err != nil {
		return "", "", brig.Errorf(brig.InvalidConfig, "cannot read workspaces.s3.credentials").
			WithHint("check the file's name and mode").Because(err)
	}
	access, secret, ok := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if access, secret = strings.TrimSpace(access), strings.TrimSpace(secret); !ok || access == "" || secret == "" {
		return "", "", brig.Errorf(brig.InvalidConfig, "workspaces.s3.credentials is not two lines").
			WithHint("write the access key into the first line and the secret key into the second")
	}
	return access, secret, nil
}
