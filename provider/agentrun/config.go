// Package agentrun runs programs in the Code Interpreter of Aliyun's AgentRun.
// Its control plane manages templates. Its data plane creates a sandbox from a
// template, runs code in the sandbox and ends the sandbox. The provider
// supports only programs and no sandboxes.
package agentrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// Name is the provider's name.
const Name = "aliyun_codeinterpreter"

// Title is the display name.
const Title = "Aliyun Code Interpreter"

// maxTimeout is the maximum execution time of the service, in seconds.
const maxTimeout = 30

// Config is the configuration of the provider.
type Config struct {
	AccessKeyID     string `json:"access_key_id" title:"AccessKey ID" doc:"Of a RAM user that may use AgentRun." placeholder:"LTAI…" form:"required"`
	AccessKeySecret string `json:"access_key_secret" title:"AccessKey secret" form:"required,secret"`
	AccountID       string `json:"account_id" title:"Account ID" doc:"The number of the main account." placeholder:"1234567890123456" form:"required"`
	Region          string `json:"region" title:"Region" options:"cn-hangzhou,cn-beijing,cn-shanghai,cn-shenzhen,cn-guangzhou"`
	TemplateName    string `json:"template_name" title:"Template" doc:"The template of the sandboxes. Left out, there is one for each language, which is made when it is first wanted."`
	Timeout         int    `json:"timeout" title:"Timeout (seconds)" doc:"How long a program may take at most." min:"1" max:"30"`
	SecurityToken   string `json:"security_token" title:"Security token" doc:"Of temporary credentials." form:"secret"`
	ControlEndpoint string `json:"control_endpoint" title:"Control plane" doc:"Default the region's." placeholder:"https://agentrun.cn-hangzhou.aliyuncs.com" form:"destination"`
	DataEndpoint    string `json:"data_endpoint" title:"Data plane" doc:"Default the account's in the region." placeholder:"https://….agentrun-data.cn-hangzhou.aliyuncs.com" form:"destination"`
	AllowPrivate    bool   `json:"allow_private" title:"Private network" doc:"The endpoints may be on this machine or in a private network, and there spoken with in plain HTTP." form:"destination"`
	PinSHA256       string `json:"pin_sha256" title:"Pinned key" doc:"The SHA-256 of the public key in a certificate that both endpoints show: that of their authority, mostly." form:"destination"`
}

// regions lists the regions in which the service is available.
var regions = []string{"cn-hangzhou", "cn-beijing", "cn-shanghai", "cn-shenzhen", "cn-guangzhou"}

// defaults returns the default values of a configuration, which come from the
// process's environment. If a value has several variables, the first variable
// that is set takes precedence.
func defaults(getenv func(string) string) Config {
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(getenv(n)); v != "" {
				return v
			}
		}
		return ""
	}
	return Config{
		AccessKeyID:     first("AGENTRUN_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"),
		AccessKeySecret: first("AGENTRUN_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
		SecurityToken:   first("AGENTRUN_SECURITY_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN"),
		AccountID:       first("AGENTRUN_ACCOUNT_ID", "FC_ACCOUNT_ID"),
		Region:          cmp.Or(first("AGENTRUN_REGION", "FC_REGION"), regions[0]),
		ControlEndpoint: first("AGENTRUN_CONTROL_ENDPOINT"),
		DataEndpoint:    first("AGENTRUN_DATA_ENDPOINT"),
		Timeout:         maxTimeout,
	}
}

// MisnamedVariablesHint returns a hint with the correct names of misnamed variables in
// the environment, or "" if there are none.
func MisnamedVariablesHint(getenv func(string) string) string {
	var out []string
	for _, n := range []string{"ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "SECURITY_TOKEN", "ACCOUNT_ID", "REGION", "CONTROL_ENDPOINT", "DATA_ENDPOINT"} {
		if getenv("ALIYUN_"+n) != "" && getenv("AGENTRUN_"+n) == "" {
			out = append(out, fmt.Sprintf("ALIYUN_%s is set and not read: call it AGENTRUN_%s", n, n))
		}
	}
	return strings.Join(out, "; ")
}

// Validate implements brig.ConfigRules.
func (c *Config) Validate() []brig.FieldError {
	var out []brig.FieldError
	addError := func(bad bool, field, message string) {
		if bad {
			out = append(out, brig.FieldError{Field: field, Message: message})
		}
	}
	addError(!strings.HasPrefix(c.AccessKeyID, "LTAI"), "access_key_id", "Invalid AccessKey ID format (should start with 'LTAI')")
	addError(c.AccessKeySecret == "", "access_key_secret", "AccessKey secret is required")
	addError(c.AccountID == "", "account_id", "Account ID is required")
	addError(c.AccountID != "" && strings.Trim(c.AccountID, "0123456789") != "", "account_id", "Account ID must be a number")
	addError(!slices.Contains(regions, c.Region), "region", "Invalid region. Must be one of: "+strings.Join(regions, ", "))
	addError(c.Timeout < 1 || c.Timeout > maxTimeout, "timeout", "Timeout must be between 1 and 30 seconds")
	addError(!isPlainName(c.TemplateName), "template_name", "Template names are of letters, digits, '-' and '_'")
	for _, check := range []func() error{
		func() error { _, err := c.control(); return err },
		func() error { _, err := c.data(); return err },
		func() error { _, err := remote.ParsePin("pin_sha256", c.PinSHA256); return err },
	} {
		if e, ok := errors.AsType[*brig.Error](check()); ok && len(out) == 0 {
			addError(true, e.Field, e.Message+"; "+e.Hint)
		}
	}
	return out
}

// isPlainName reports whether s can be part of a path without escaping.
func isPlainName(s string) bool {
	return len(s) <= 128 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// control returns the endpoint of the control plane.
func (c *Config) control() (*brig.Endpoint, error) {
	return brig.ParseEndpoint("control_endpoint", cmp.Or(c.ControlEndpoint, "https://agentrun."+c.Region+".aliyuncs.com"), c.AllowPrivate)
}

// data returns the endpoint of the data plane. With a signing key, the
// endpoint differs from the host that the console shows.
func (c *Config) data() (*brig.Endpoint, error) {
	e, err := brig.ParseEndpoint("data_endpoint", cmp.Or(c.DataEndpoint, "https://"+c.AccountID+".agentrun-data."+c.Region+".aliyuncs.com"), c.AllowPrivate)
	if err != nil {
		return nil, err
	}
	first, rest, _ := strings.Cut(e.URL.Host, ".")
	if (strings.HasPrefix(rest, "agentrun-data.") || strings.HasPrefix(rest, "funagent-data-pre.")) && !strings.HasSuffix(first, "-ram") {
		e.URL.Host = first + "-ram." + rest
	}
	return e, nil
}

// Driver returns the driver of this kind of provider. getenv reads the process's
// environment.
func Driver(getenv func(string) string) brig.Driver {
	doc := "Aliyun's AgentRun: programs run in a cloud's sandboxes, for 30 seconds at most."
	if hint := MisnamedVariablesHint(getenv); hint != "" {
		doc += " " + hint + "."
	}
	return brig.NewDriver(brig.Driver{
		Name: Name, Title: Title, Doc: doc,
		Tags:      []string{"saas", "cloud", "scalable", "aliyun"},
		Languages: languages,
	}, defaults(getenv), func(ctx context.Context, env brig.ProviderEnv, c *Config) (brig.Provider, error) {
		if hint := MisnamedVariablesHint(getenv); hint != "" {
			env.Log.WarnContext(ctx, "agentrun: "+hint)
		}
		return Open(env, *c)
	})
}
