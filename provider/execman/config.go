// Package execman runs programs on an executor manager: a remote service with
// RAGFlow's protocol, such as another Brig. The provider supports only programs
// and no sandboxes.
package execman

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// Name is the provider's name.
const Name = "self_managed"

// Title is the display name.
const Title = "Self-Managed"

// Config is the configuration of the provider. The fields about the deployment are purely
// informational.
type Config struct {
	Endpoint     string `json:"endpoint" title:"Endpoint" doc:"Where the executor manager listens." placeholder:"http://localhost:9385" form:"required"`
	Timeout      int    `json:"timeout" title:"Timeout (seconds)" doc:"How long a program may take at most." min:"5" max:"300"`
	MaxRetries   int    `json:"max_retries" title:"Retries" doc:"The number of retries of a call that cannot have started." min:"0" max:"10"`
	PoolSize     int    `json:"pool_size" title:"Programs at once" doc:"The number of concurrent programs." min:"1" max:"100"`
	MaxMemory    string `json:"max_memory" title:"Memory" doc:"The memory limit of a program there." options:"128m,256m,512m,1g"`
	AllowPrivate bool   `json:"allow_private" title:"Private network" doc:"The endpoint may be on this machine or in a private network, and there spoken with in plain HTTP. Without it only HTTPS to public addresses is."`
	PinSHA256    string `json:"pin_sha256" title:"Pinned key" doc:"The SHA-256 of the public key in the endpoint's certificate, or in its authority's."`
	Authority    string `json:"authority" title:"Authority" doc:"Certificates of additional CAs, in PEM, that may sign the endpoint's certificate." form:"multiline"`

	ManagerImage string `json:"executor_manager_image" title:"Image of the manager" form:"readonly"`
	ManagerPool  int    `json:"executor_manager_pool_size" title:"Sandboxes that wait" min:"1" max:"100" form:"readonly"`
	PythonImage  string `json:"base_python_image" title:"Image for Python" form:"readonly"`
	NodeImage    string `json:"base_nodejs_image" title:"Image for Node.js" form:"readonly"`
	ManagerPort  int    `json:"executor_manager_port" title:"Port of the manager" min:"1" max:"65535" form:"readonly"`
	Seccomp      bool   `json:"enable_seccomp" title:"Seccomp" form:"readonly"`
	RunTimeout   string `json:"sandbox_timeout" title:"Timeout of the manager" form:"readonly"`
}

// defaults returns the default values of a configuration, which come from the
// manager's own SANDBOX_* variables.
func defaults(getenv func(string) string) Config {
	number := func(name string, or int) int {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
			return n
		}
		return or
	}
	yes, _ := strconv.ParseBool(getenv("SANDBOX_ENABLE_SECCOMP")) // an invalid value counts as false
	return Config{
		Timeout: 30, MaxRetries: 3, PoolSize: 10, MaxMemory: "256m",
		// The service is usually in the operator's own network.
		AllowPrivate: true,

		ManagerImage: cmp.Or(getenv("SANDBOX_EXECUTOR_MANAGER_IMAGE"), "infiniflow/sandbox-executor-manager:latest"),
		ManagerPool:  number("SANDBOX_EXECUTOR_MANAGER_POOL_SIZE", 3),
		PythonImage:  cmp.Or(getenv("SANDBOX_BASE_PYTHON_IMAGE"), "infiniflow/sandbox-base-python:latest"),
		NodeImage:    cmp.Or(getenv("SANDBOX_BASE_NODEJS_IMAGE"), "infiniflow/sandbox-base-nodejs:latest"),
		ManagerPort:  number("SANDBOX_EXECUTOR_MANAGER_PORT", 9385),
		Seccomp:      yes,
		RunTimeout:   cmp.Or(getenv("SANDBOX_TIMEOUT"), "10s"),
	}
}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() []brig.FieldError {
	var out []brig.FieldError
	add := func(field, message string) { out = append(out, brig.FieldError{Field: field, Message: message}) }
	addError := func(err error) {
		if e, ok := errors.AsType[*brig.Error](err); ok {
			add(e.Field, e.Message+"; "+e.Hint)
		}
	}
	_, err := brig.ParseEndpoint("endpoint", c.Endpoint, c.AllowPrivate)
	addError(err)
	if c.Timeout < 1 || c.Timeout > 600 {
		add("timeout", "Timeout must be between 1 and 600 seconds")
	}
	if c.MaxRetries < 0 || c.MaxRetries > 10 {
		add("max_retries", "Max retries must be between 0 and 10")
	}
	if c.PoolSize < 1 {
		add("pool_size", "Pool size must be greater than 0")
	}
	_, err = remote.ParsePin("pin_sha256", c.PinSHA256)
	addError(err)
	addError(remote.CheckAuthority("authority", c.Authority))
	return out
}

// Driver returns the driver of this kind of provider. getenv reads the process's
// environment.
func Driver(getenv func(string) string) brig.Driver {
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: Title,
		Doc:       "An executor manager of one's own: a server elsewhere that runs programs.",
		Tags:      []string{"self-hosted", "low-latency", "secure"},
		Languages: languages,
	}, defaults(getenv), func(_ context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) { return Open(env, *c) })
}
