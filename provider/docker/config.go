package docker

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/brig-run/brig"
)

// Title is the display name.
const Title = "Docker"

// Config is the configuration of the provider.
type Config struct {
	Host     string `json:"host" title:"Engine" doc:"Where the Docker Engine listens: unix:///path or tcp://host:port. Left out, its usual socket on this machine." placeholder:"unix:///run/docker.sock" form:"destination"`
	Image    string `json:"image" title:"Image" doc:"The image of sandboxes whose caller names none." placeholder:"python:3.12-slim" form:"required"`
	Runtime  string `json:"runtime" title:"Runtime" doc:"As the engine's configuration names it: runc (hardening, no boundary) or runsc (gVisor). Left out, the engine's own." placeholder:"runsc"`
	Pull     string `json:"pull" title:"Pull images" doc:"When an image is pulled." options:"missing,always,never"`
	Storage  string `json:"storage" title:"Storage" doc:"Where a sandbox writes: in memory, or in the container's layer, for engines that give it a size." options:"memory,layer"`
	TLSCA    string `json:"tls_ca" title:"Authority (file)" doc:"A file of this server, in PEM: who the engine is vouched for by." form:"destination"`
	TLSCert  string `json:"tls_cert" title:"Certificate (file)" doc:"A PEM file on this server: the client certificate that the engine accepts."`
	TLSKey   string `json:"tls_key" title:"Key (file)" doc:"A file of this server, in PEM: that of the certificate."`
	Registry string `json:"registry" title:"Registry" doc:"The registry of the account." placeholder:"docker.io" form:"destination"`
	Username string `json:"registry_username" title:"User at the registry"`
	Password string `json:"registry_password" title:"Password at the registry" form:"secret"`
}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() []brig.FieldError {
	var out []brig.FieldError
	addError := func(field, message string) { out = append(out, brig.FieldError{Field: field, Message: message}) }
	tcp := false
	if c.Host != "" {
		u, err := url.Parse(c.Host)
		switch {
		case err == nil && u.Scheme == "tcp" && u.Port() != "":
			tcp = true
		case err == nil && u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		default:
			addError("host", "Engine must be unix:///path or tcp://host:port")
		}
	}
	if _, err := reference.ParseDockerRef(c.Image); err != nil && !strings.HasPrefix(c.Image, "sha256:") {
		addError("image", "Image must be a reference as docker has them")
	}
	for _, f := range []struct{ name, file string }{{"tls_ca", c.TLSCA}, {"tls_cert", c.TLSCert}, {"tls_key", c.TLSKey}} {
		switch {
		case f.file == "" && c.tls() != (TLS{}):
			addError(f.name, "Authority, certificate and key go together")
		case f.file != "" && !tcp:
			addError(f.name, "TLS needs an engine at tcp://host:port")
		case f.file != "" && !filepath.IsAbs(f.file):
			addError(f.name, "The file must be an absolute path")
		}
	}
	if account := []string{c.Registry, c.Username, c.Password}; slices.Contains(account, "") && strings.Join(account, "") != "" {
		addError("registry", "Registry, user and password go together")
	}
	return out
}

func (c *Config) tls() TLS { return TLS{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey} }

// Driver returns the driver of this kind of provider.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: Title,
		Doc:       "A Docker Engine, here or elsewhere: a container for each sandbox, with runc or gVisor's runsc.",
		Tags:      []string{"self-hosted", "containers"},
		Languages: brig.Languages,
	}, Config{Pull: pullMissing, Storage: storageMemory}, func(ctx context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
		agent, err := os.ReadFile(env.Agent)
		if err != nil {
			return nil, brig.Errorf(brig.NotInitialized, "the agent of sandboxes cannot be read").WithHint("start the server again").Because(err)
		}
		o := Options{
			Host: c.Host, Image: c.Image, Runtime: c.Runtime, Pull: c.Pull, Storage: c.Storage, TLS: c.tls(),
			DataDir: env.Dir, Agent: agent, Log: env.Log,
		}
		if c.Registry != "" {
			o.Logins = map[string]Login{c.Registry: {c.Username, c.Password}}
		}
		return Open(ctx, o)
	})
}
