package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/signin"
)

// oidcConfig configures the identity provider for sign-in.
type oidcConfig struct {
	Issuer   string `yaml:"issuer"`
	ClientID string `yaml:"client_id"`
	// ClientSecret is the secret of a confidential client. ClientSecretFile is
	// a file that contains it. A client with neither is a public client.
	ClientSecret     string `yaml:"client_secret"`
	ClientSecretFile string `yaml:"client_secret_file"`
	// Audiences are the accepted audiences of tokens, in addition to the client ID. Clients are the
	// IDs of other programs that the provider may issue tokens to.
	Audiences []string `yaml:"audiences"`
	Clients   []string `yaml:"clients"`
	Scopes    []string `yaml:"scopes"`
	// AllowPrivate allows private addresses for the hosts in the provider's metadata.
	AllowPrivate bool `yaml:"allow_private"`
	// Domains, Tenant and Role define the mapping of people to tenants and roles. The server
	// reloads the mapping when the file changes.
	Domains []string         `yaml:"domains"`
	Tenant  oidcTenantConfig `yaml:"tenant"`
	Role    oidcRoleConfig   `yaml:"role"`
}

// oidcTenantConfig maps people to tenants.
type oidcTenantConfig struct {
	Claim   string            `yaml:"claim"`
	Values  map[string]string `yaml:"values"`
	Default string            `yaml:"default"`
}

// oidcRoleConfig maps people to roles.
type oidcRoleConfig struct {
	Claim   string            `yaml:"claim"`
	Values  map[string]string `yaml:"values"`
	Default string            `yaml:"default"`
}

// sessionsConfig bounds the duration of browser sessions.
type sessionsConfig struct {
	Idle duration `yaml:"idle"`
	Life duration `yaml:"life"`
}

// noRole is the configuration value that assigns no role.
const noRole = "none"

// mapping returns the configured mapping of people to tenants and roles.
func (o *oidcConfig) mapping() (*signin.Mapping, error) {
	m := &signin.Mapping{
		Domains: o.Domains,
		Tenant:  signin.TenantRule{Claim: o.Tenant.Claim, Values: o.Tenant.Values, Default: o.Tenant.Default},
		Role:    signin.RoleRule{Claim: o.Role.Claim},
	}
	role := func(field, s string) (brig.Role, error) {
		if s == "" || s == noRole {
			return brig.Nobody, nil
		}
		r, err := brig.ParseRole(s)
		if err != nil {
			return r, brig.Errorf(brig.InvalidConfig, "%s: %s", field, brig.AsError(err).Message).WithHint("use none, viewer, member, admin or operator")
		}
		return r, nil
	}
	var err error
	if m.Role.Default, err = role("oidc.role.default", o.Role.Default); err != nil {
		return nil, err
	}
	for value, name := range o.Role.Values {
		r, err := role("oidc.role.values", name)
		if err != nil {
			return nil, err
		}
		if m.Role.Values == nil {
			m.Role.Values = map[string]brig.Role{}
		}
		m.Role.Values[value] = r
	}
	return m, m.Check()
}

// checkOIDC rejects a configuration that makes sign-in impossible.
func (c *config) checkOIDC() error {
	if c.Sessions.Idle < 0 || c.Sessions.Life < 0 {
		return brig.Errorf(brig.InvalidConfig, "sessions: a duration is negative").WithHint("leave it out for the default")
	}
	if c.OIDC == nil {
		return nil
	}
	if c.OIDC.ClientSecret != "" && c.OIDC.ClientSecretFile != "" {
		return brig.Errorf(brig.InvalidConfig, "oidc.client_secret and oidc.client_secret_file cannot be combined").WithHint("give one of them")
	}
	m, err := c.OIDC.mapping()
	if err != nil {
		return err
	}
	_, err = signin.New(c.OIDC.options(c.URL, "", []byte("of nobody: a check"), func() (*signin.Mapping, error) { return m, nil }))
	return err
}

func (o *oidcConfig) options(url, secret string, seed []byte, mapping func() (*signin.Mapping, error)) signin.Options {
	scopes := o.Scopes
	if scopes == nil {
		scopes = []string{"openid", "email", "profile"}
	}
	return signin.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: secret, Audiences: o.Audiences, Clients: o.Clients,
		Scopes: scopes, URL: url, Seed: seed, Mapping: mapping, AllowPrivate: o.AllowPrivate,
	}
}

// openSignIn enables sign-in if it is configured. The key that encrypts the login cookie is derived
// from the seed for grants.
func (c serveCommands) openSignIn(cfg *config, o *engine.Options, log *slog.Logger) (*signin.Provider, error) {
	o.SessionIdle, o.SessionLife = cfg.Sessions.Idle.toDuration(), cfg.Sessions.Life.toDuration()
	if cfg.OIDC == nil {
		return nil, nil
	}
	secret := cfg.OIDC.ClientSecret
	if file := cfg.OIDC.ClientSecretFile; file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "cannot read oidc.client_secret_file").Because(err)
		}
		secret = strings.TrimSpace(string(b))
	}
	seed := hmac.New(sha256.New, o.GrantSeed)
	seed.Write([]byte("signin"))
	watched := &mappingFile{path: c.configFile, log: log, read: func() (*signin.Mapping, error) {
		now, err := c.loadConfig()
		if err != nil {
			return nil, err
		}
		if now.OIDC == nil {
			return nil, brig.Errorf(brig.InvalidConfig, "oidc is not in the configuration file any more")
		}
		return now.OIDC.mapping()
	}}
	options := cfg.OIDC.options(cfg.URL, secret, seed.Sum(nil), watched.mapping)
	options.Clock = o.Clock
	p, err := signin.New(options)
	if err != nil {
		return nil, err
	}
	o.Users = p
	return p, nil
}

// mappingInterval is the minimum interval between checks of the file for changes.
const mappingInterval = 100 * time.Millisecond

// mappingFile provides the current mapping in the configuration file. People who are no longer
// admitted by the file lose access within a second. While the file is unreadable, every sign-in
// fails.
type mappingFile struct {
	path string
	log  *slog.Logger
	read func() (*signin.Mapping, error)

	mu     sync.Mutex // guards the fields below
	looked time.Time
	stamp  fs.FileInfo
	now    *signin.Mapping
	err    error
}

func (f *mappingFile) mapping() (*signin.Mapping, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < mappingInterval {
		return f.now, f.err
	}
	f.looked = time.Now()
	stamp, err := os.Stat(f.path)
	if err == nil && f.err == nil && f.stamp != nil && os.SameFile(stamp, f.stamp) &&
		stamp.ModTime().Equal(f.stamp.ModTime()) && stamp.Size() == f.stamp.Size() {
		return f.now, nil
	}
	if err == nil {
		f.stamp = stamp
		var m *signin.Mapping
		if m, err = f.read(); err == nil {
			f.now = m
		}
	}
	if err != nil && f.err == nil {
		f.log.ErrorContext(context.Background(), "failed to read the sign-in rules; sign-in is disabled until they are readable", "file", f.path, "err", err)
	}
	if f.err = err; err != nil {
		return nil, err
	}
	return f.now, nil
}
