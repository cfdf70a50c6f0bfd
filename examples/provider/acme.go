// Package acme is an example of a provider that is developed outside of Brig: a
// package with a Driver, here for a service that runs posted Python code. It
// imports only Brig's root package, and no package of Brig imports it. Add
// `acme.Driver()` to the list of drivers in cmd/brig to let administrators
// find, configure, test and activate it.
//
// A provider with sandboxes implements Create and brig.Instance instead of
// brig.Runner. provider/providertest checks the contracts of both.
package acme

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Config is the configuration. Its fields determine the form, the JSON Schema and the checks. See
// package schema for the tags.
type Config struct {
	Endpoint string `json:"endpoint" title:"Endpoint" placeholder:"https://run.acme.example" form:"required"`
	APIKey   string `json:"api_key" title:"API key" form:"required,secret"`
	Region   string `json:"region" title:"Region" options:"north,south"`
	Timeout  int    `json:"timeout" title:"Timeout (seconds)" min:"1" max:"60"`
}

// Validate implements brig.ConfigRules. It checks rules that tags cannot express.
func (c *Config) Validate() []brig.FieldError {
	var wrong []brig.FieldError
	if !strings.HasPrefix(c.APIKey, "acme_") {
		wrong = append(wrong, brig.FieldError{Field: "api_key", Message: "API keys begin with acme_"})
	}
	if _, err := brig.ParseEndpoint("endpoint", c.Endpoint, true); err != nil {
		wrong = append(wrong, brig.FieldError{Field: "endpoint", Message: err.Error()})
	}
	return wrong
}

// Driver returns the driver of this kind of provider.
func Driver() brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: "acme", Title: "Acme", Doc: "A service that runs Python.", Tags: []string{"saas"}, Languages: []brig.Language{brig.Python},
	}, Config{Region: "north", Timeout: 30}, func(_ context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
		return &provider{env: env, config: *c, http: &http.Client{Timeout: time.Duration(c.Timeout) * time.Second}}, nil
	})
}

type provider struct {
	env    brig.ProviderEnv
	config Config
	http   *http.Client
}

// Capabilities implements brig.Provider. Areas that are not listed are not enforced, and the engine
// places requests that require them on other providers.
func (p *provider) Capabilities() brig.Capabilities {
	return brig.Capabilities{Name: "acme", Isolation: "a service elsewhere", RunsOnly: true}
}

// Create implements brig.Provider.
func (p *provider) Create(context.Context, brig.ID, brig.Spec, time.Time) (brig.Instance, error) {
	return nil, brig.Errorf(brig.Unimplemented, "acme only runs programs")
}

// Recover implements brig.Provider.
func (p *provider) Recover(_ context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	return nil, brig.Errorf(brig.NotFound, "no machine %s", id)
}

// Sweep implements brig.Provider.
func (p *provider) Sweep(context.Context, map[brig.ID]bool) (int, error) { return 0, nil }

// Run implements brig.Runner.
func (p *provider) Run(ctx context.Context, _ brig.ID, prog brig.Program, sio brig.IO) (*brig.Outcome, error) {
	if prog.Language != brig.Python || len(prog.Files) > 0 || len(prog.Env) > 0 {
		e := brig.Errorf(brig.FailedPrecondition, "acme runs Python, without files or environment")
		e.Field = "language"
		return nil, e.WithHint("choose another provider")
	}
	body, err := json.Marshal(map[string]any{"code": prog.Code, "arguments": prog.Arguments})
	if err != nil {
		return nil, fmt.Errorf("encode program: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.config.Endpoint+"/run", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+p.config.APIKey)
	began := time.Now()
	resp, err := p.http.Do(req)
	call := brig.Call{Operation: "run", Region: p.config.Region, Seconds: time.Since(began).Seconds()}
	if resp != nil {
		call.Status = resp.StatusCode
	}
	p.env.Called(call)
	if err != nil {
		// The program may have run. The engine runs it on another provider only
		// if the program cannot have had effects outside its sandbox.
		return nil, brig.WithRetry(brig.Errorf(brig.Unavailable, "acme does not answer").Because(err), brig.RetryContained)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, brig.Errorf(brig.Unavailable, "acme answers with HTTP %d", resp.StatusCode)
	}
	var said struct {
		Stdout   string          `json:"stdout"`
		ExitCode int             `json:"exit_code"`
		Value    json.RawMessage `json:"value"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 64<<20)).Decode(&said); err != nil {
		return nil, brig.WithRetry(brig.Errorf(brig.Unavailable, "acme sent an invalid response").Because(err), brig.RetryContained)
	}
	o := &brig.Outcome{Sandbox: prog.SandboxName, Value: said.Value}
	o.Done, o.ExitCode, o.Started, o.Duration = true, said.ExitCode, began.UTC(), time.Since(began)
	o.Stdout = brig.Output{Head: []byte(said.Stdout), Total: int64(len(said.Stdout))}
	if sio.Stdout != nil {
		if _, err := sio.Stdout.Write(o.Stdout.Head); err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
	return o, nil
}
