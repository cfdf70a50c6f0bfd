package agentrun

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/schema"
)

func TestConfigRules(t *testing.T) {
	good := defaults(func(string) string { return "" })
	good.AccessKeyID, good.AccessKeySecret, good.AccountID = "LTAI1", "s", "123"
	if invalid := good.Validate(); len(invalid) != 0 {
		t.Errorf("a good one is wrong: %+v", invalid)
	}
	for _, c := range []struct {
		change         func(*Config)
		field, message string
	}{
		{func(c *Config) { c.AccessKeyID = "AKIA1" }, "access_key_id", "Invalid AccessKey ID format (should start with 'LTAI')"},
		{func(c *Config) { c.AccessKeyID = "" }, "access_key_id", "Invalid AccessKey ID format (should start with 'LTAI')"},
		{func(c *Config) { c.AccessKeySecret = "" }, "access_key_secret", "AccessKey secret is required"},
		{func(c *Config) { c.AccountID = "" }, "account_id", "Account ID is required"},
		{func(c *Config) { c.AccountID = "evil.example.com/" }, "account_id", "Account ID must be a number"},
		{func(c *Config) { c.Region = "us-east-1" }, "region", "Invalid region. Must be one of: cn-hangzhou, cn-beijing, cn-shanghai, cn-shenzhen, cn-guangzhou"},
		{func(c *Config) { c.Timeout = 0 }, "timeout", "Timeout must be between 1 and 30 seconds"},
		{func(c *Config) { c.Timeout = 60 }, "timeout", "Timeout must be between 1 and 30 seconds"},
		{func(c *Config) { c.TemplateName = "../x" }, "template_name", "Template names are"},
		{func(c *Config) { c.DataEndpoint = "http://127.0.0.1:1" }, "data_endpoint", "plain HTTP"},
		{func(c *Config) { c.ControlEndpoint = "https://169.254.169.254" }, "control_endpoint", "no service"},
		{func(c *Config) { c.PinSHA256 = "zz" }, "pin_sha256", "not a SHA-256"},
	} {
		config := good
		c.change(&config)
		invalid := config.Validate()
		if len(invalid) != 1 || invalid[0].Field != c.field || !strings.Contains(invalid[0].Message, c.message) {
			t.Errorf("%s: %+v, want %q", c.field, invalid, c.message)
		}
	}
}

// TestConfigFromEnvironment verifies that the first variable that is set takes
// precedence, and that variable names of other software result in a hint.
func TestConfigFromEnvironment(t *testing.T) {
	vars := map[string]string{
		"AGENTRUN_ACCESS_KEY_ID": "LTAIone", "ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAItwo", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "from the environment",
		"FC_ACCOUNT_ID": "42", "FC_REGION": "cn-shanghai", "ALIYUN_REGION": "cn-beijing", "ALIYUN_ACCESS_KEY_ID": "LTAIthree",
	}
	env := func(name string) string { return vars[name] }
	driver := Driver(env)
	config, ok := driver.Config().(*Config)
	if !ok {
		t.Fatalf("the configuration is a %T", driver.Config())
	}
	if config.AccessKeyID != "LTAIone" || config.AccessKeySecret != "from the environment" || config.AccountID != "42" || config.Region != "cn-shanghai" {
		t.Errorf("the environment makes %+v", config)
	}
	if wrong := schema.Decode([]byte(`{"timeout":20}`), config); len(wrong) != 0 || config.Timeout != 20 {
		t.Errorf("with what the environment has nothing is missing: %+v", wrong)
	}
	if !strings.Contains(driver.Doc, "ALIYUN_REGION is set and not read: call it AGENTRUN_REGION") || strings.Contains(driver.Doc, "ALIYUN_ACCESS_KEY_ID") {
		t.Errorf("the hint is %q", driver.Doc)
	}
	for _, f := range schema.Fields(config) {
		if f.Secret && f.Default != nil {
			t.Errorf("the form shows the secret %s", f.Name)
		}
	}
	empty := Driver(func(string) string { return "" })
	wrong := schema.Decode([]byte(`{"timeout":60,"region":"mars"}`), empty.Config())
	fields := map[string]string{}
	for _, w := range wrong {
		fields[w.Field] = w.Message
	}
	for field, want := range map[string]string{
		"access_key_id": "missing", "access_key_secret": "missing", "account_id": "missing", "timeout": "<= 30", "region": "one of",
	} {
		if !strings.Contains(fields[field], want) {
			t.Errorf("%s: %q, want one that says %q", field, fields[field], want)
		}
	}
}

// TestEndpoints verifies that with a signing key, the host differs from the
// host that the console shows.
func TestEndpoints(t *testing.T) {
	c := Config{AccountID: "123", Region: "cn-hangzhou"}
	for in, want := range map[string]string{
		"": "https://123-ram.agentrun-data.cn-hangzhou.aliyuncs.com",
		"https://123-ram.agentrun-data.cn-hangzhou.aliyuncs.com": "https://123-ram.agentrun-data.cn-hangzhou.aliyuncs.com",
		"https://9.funagent-data-pre.cn-beijing.aliyuncs.com":    "https://9-ram.funagent-data-pre.cn-beijing.aliyuncs.com",
		"https://proxy.example.com/agentrun":                     "https://proxy.example.com/agentrun",
	} {
		c.DataEndpoint = in
		e, err := c.data()
		if err != nil || e.URL.String() != want {
			t.Errorf("%q is %v, %v, want %s", in, e, err, want)
		}
	}
	if e, err := c.control(); err != nil || e.URL.String() != "https://agentrun.cn-hangzhou.aliyuncs.com" {
		t.Errorf("the control plane is %v, %v", e, err)
	}
	var _ brig.ConfigRules = &c
}
