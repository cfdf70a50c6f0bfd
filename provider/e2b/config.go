package e2b

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
)

// Name is the driver's name.
const Name = "e2b"

// Config is what an administrator sets.
type Config struct {
	APIKey     string `json:"api_key" title:"API key" doc:"The key of a team." placeholder:"e2b_…" form:"required,secret"`
	Region     string `json:"region" title:"Region" doc:"Where sandboxes are." options:"us,eu"`
	Domain     string `json:"domain" title:"Domain" doc:"The service's domain, if it is another than E2B's." placeholder:"e2b.app"`
	APIURL     string `json:"api_url" title:"API" doc:"Where the control plane is, if it is not at api. of the domain." placeholder:"https://api.e2b.app"`
	SandboxURL string `json:"sandbox_url" title:"Sandboxes" doc:"Where sandboxes are reached, if it is not at a host of their own." placeholder:"https://sandbox.e2b.app"`
	Template   string `json:"template" title:"Template" doc:"What sandboxes are made of that name no image." placeholder:"base"`
	Account    string `json:"account" title:"Account" doc:"As whom the agent runs in a sandbox. As root files can have several owners, where the service lets root be root." options:"user,root"`
	Timeout    int    `json:"timeout" title:"Timeout" doc:"Seconds that a call of the API may take." min:"5" max:"300"`
	PinSHA256  string `json:"pin_sha256" title:"Certificate pin" doc:"The SHA-256 of the service's public key (SubjectPublicKeyInfo), in hex. No other is accepted then." placeholder:"64 hex digits"`
}

// domains are E2B's own, by region.
var domains = map[string]string{"us": "e2b.app", "eu": "eu.e2b.app"}

// Wrong implements brig.ConfigRules.
func (c *Config) Wrong() (wrong []brig.FieldError) {
	say := func(field, format string, args ...any) {
		wrong = append(wrong, brig.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if c.APIKey == "" {
		say("api_key", "it is required")
	}
	for field, v := range map[string]string{"api_url": c.APIURL, "sandbox_url": c.SandboxURL} {
		if v == "" {
			continue
		}
		u, err := url.Parse(v)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			say(field, "it is not the address of a service")
		case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
			say(field, "only https goes to another machine")
		}
	}
	if strings.ContainsAny(c.Domain, "/@?# ") {
		say("domain", "it is not a domain")
	}
	if b, err := hex.DecodeString(c.PinSHA256); c.PinSHA256 != "" && (err != nil || len(b) != 32) {
		say("pin_sha256", "it is not 64 hex digits")
	}
	return wrong
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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

// envdPort is where a sandbox's own services are.
const envdPort = "49983"

// box is where a sandbox's services are reached.
func (c *Config) box(id, domain string) string {
	if c.SandboxURL != "" {
		return strings.TrimSuffix(c.SandboxURL, "/")
	}
	if domain == "" {
		domain = c.domain()
	}
	return "https://" + envdPort + "-" + id + "." + domain
}

// Driver is how the provider presents itself.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: "E2B", Doc: "Sandboxes in E2B's cloud, or in any that speaks its protocol.",
		Tags:      []string{"saas", "fast", "global"},
		Languages: []brig.Language{"python", "javascript", "typescript", "bash"},
	}, Config{Region: "us", Template: "base", Account: "user", Timeout: 30}, func(_ context.Context, site brig.Site, c *Config) (brig.Provider, error) {
		return open(site, c)
	})
}
