package e2b

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/brig-run/brig"
)

// Name is the driver's name.
const Name = "e2b"

// Config is the administrator's configuration.
type Config struct {
	APIKey       string `json:"api_key" title:"API key" doc:"The key of a team." placeholder:"e2b_…" form:"required,secret"`
	Region       string `json:"region" title:"Region" doc:"Where sandboxes are." options:"us,eu"`
	Domain       string `json:"domain" title:"Domain" doc:"The service's domain, if it is another than E2B's." placeholder:"e2b.app" form:"destination"`
	APIURL       string `json:"api_url" title:"API" doc:"Where the control plane is, if it is not at api. of the domain." placeholder:"https://api.e2b.app" form:"destination"`
	SandboxURL   string `json:"sandbox_url" title:"Sandboxes" doc:"Where sandboxes are reached, if it is not at a host of their own." placeholder:"https://sandbox.e2b.app" form:"destination"`
	Template     string `json:"template" title:"Template" doc:"The template of sandboxes whose caller names no image." placeholder:"base"`
	Account      string `json:"account" title:"Account" doc:"The user of the agent in a sandbox. With root, files can have several owners, if the service permits root." options:"user,root"`
	Timeout      int    `json:"timeout" title:"Timeout" doc:"Seconds that a call of the API may take." min:"5" max:"300"`
	AllowPrivate bool   `json:"allow_private" title:"Private addresses" doc:"Whether the service may be on this machine or in a private network." form:"destination"`
	PinSHA256    string `json:"pin_sha256" title:"Certificate pin" doc:"The SHA-256 of the service's public key (SubjectPublicKeyInfo), in hex. No other is accepted then." placeholder:"64 hex digits" form:"destination"`
}

// domains are E2B's own domains, by region.
var domains = map[string]string{"us": "e2b.app", "eu": "eu.e2b.app"}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() (invalid []brig.FieldError) {
	say := func(field, format string, args ...any) {
		invalid = append(invalid, brig.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if c.APIKey == "" {
		say("api_key", "it is required")
	}
	for field, v := range map[string]string{"api_url": c.APIURL, "sandbox_url": c.SandboxURL} {
		if v == "" {
			continue
		}
		if _, err := c.endpoint(field, v); err != nil {
			say(field, "%s", brig.AsError(err).Message)
		}
	}
	if c.Domain != "" && !validDomain(c.Domain) {
		say("domain", "it is not a domain")
	}
	if b, err := hex.DecodeString(c.PinSHA256); c.PinSHA256 != "" && (err != nil || len(b) != 32) {
		say("pin_sha256", "it is not 64 hex digits")
	}
	return invalid
}

// isLoopback reports whether a host name refers to this host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// endpoint parses the URL of a service. A URL that names this host is allowed
// without allow_private.
func (c *Config) endpoint(field, raw string) (*brig.Endpoint, error) {
	private := c.AllowPrivate
	if u, err := url.Parse(raw); err == nil && isLoopback(u.Hostname()) {
		private = true
	}
	return brig.ParseEndpoint(field, raw, private)
}

// control returns the endpoint of the control plane.
func (c *Config) control() (*brig.Endpoint, error) { return c.endpoint("api_url", c.api()) }

// sandboxEndpoint returns the endpoint with which the addresses of sandboxes
// are checked.
func (c *Config) sandboxEndpoint() (*brig.Endpoint, error) {
	if c.SandboxURL != "" {
		return c.endpoint("sandbox_url", c.SandboxURL)
	}
	return c.endpoint("domain", "https://"+c.domain())
}

func (c *Config) domain() string {
	if c.Domain != "" {
		return c.Domain
	}
	return domains[c.Region]
}

func (c *Config) api() string {
	if c.APIURL != "" {
		return strings.TrimSuffix(c.APIURL, "/")
	}
	return "https://api." + c.domain()
}

// envdPort is the port of the services inside a sandbox.
const envdPort = "49983"

// Patterns of the service's identifiers. The identifiers become parts of a
// host name, and must not contain characters that could make it refer to
// another host.
var (
	sandboxID  = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,54}[A-Za-z0-9])?$`)
	domainName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,180}[A-Za-z0-9])?(?::[0-9]{1,5})?$`)
)

func validDomain(s string) bool { return domainName.MatchString(s) && !strings.Contains(s, "..") }

// sandboxAddress returns the address of a sandbox's services. The domain that
// the service returns for a sandbox must be the configured domain or one of
// its subdomains.
func (c *Config) sandboxAddress(id, domain string) (string, error) {
	invalid := func(format string, args ...any) *brig.Error {
		return brig.Errorf(brig.ConnectionFailed, format, args...)
	}
	if !sandboxID.MatchString(id) {
		return "", invalid("the E2B service named a sandbox %q, which cannot be the id of one", brig.Clip(id, 60)).
			WithHint("check that api_url is the address of an E2B control plane")
	}
	if c.SandboxURL != "" {
		return strings.TrimSuffix(c.SandboxURL, "/"), nil
	}
	if domain == "" {
		domain = c.domain()
	}
	if configured := c.domain(); !validDomain(domain) || !strings.EqualFold(domain, configured) && !strings.HasSuffix(strings.ToLower(domain), "."+strings.ToLower(configured)) {
		e := invalid("the E2B service has the sandbox in the domain %q, which is not in %s", brig.Clip(domain, 100), configured).
			WithHint("if sandboxes are meant to be there, set domain to it, and api_url to the control plane")
		e.Field = "domain"
		return "", e
	}
	return "https://" + envdPort + "-" + id + "." + domain, nil
}

// Driver returns the driver of this kind of provider.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: "E2B", Doc: "Sandboxes in E2B's cloud, or in any that speaks its protocol.",
		Tags:      []string{"saas", "fast", "global"},
		Languages: []brig.Language{"python", "javascript", "typescript", "bash"},
	}, Config{Region: "us", Template: "base", Account: "user", Timeout: 30}, func(_ context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
		return openProvider(env, c)
	})
}
