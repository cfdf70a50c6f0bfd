package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/schema"
)

// config has a field of every type.
type config struct {
	Endpoint string   `json:"endpoint" title:"Endpoint" doc:"Where it listens." placeholder:"http://localhost:9385" form:"required"`
	Key      string   `json:"api_key" title:"Key" form:"required,secret"`
	Region   string   `json:"region" options:"us,eu"`
	Timeout  int      `json:"timeout" min:"5" max:"300"`
	Price    float64  `json:"price" min:"0"`
	TLS      bool     `json:"tls"`
	Hosts    []string `json:"hosts"`
	Image    string   `json:"image" form:"readonly"`
	hidden   int
}

// Validate implements brig.ConfigRules.
func (c *config) Validate() []brig.FieldError {
	if !strings.HasPrefix(c.Endpoint, "http") {
		return []brig.FieldError{{Field: "endpoint", Message: "not a URL"}}
	}
	return nil
}

func newConfig() *config { return &config{Region: "us", Timeout: 30, Image: "a:1", hidden: 1} }

func TestDecodeReportsEveryInvalidField(t *testing.T) {
	for name, c := range map[string]struct{ raw, wrong string }{
		"fits":            {`{"endpoint":"http://x","api_key":"k"}`, ""},
		"all":             {`{"endpoint":"http://x","api_key":"k","region":"eu","timeout":300,"price":0.5,"tls":true,"hosts":["a"],"image":"b"}`, ""},
		"null is absent":  {`{"endpoint":"http://x","api_key":"k","timeout":null}`, ""},
		"missing":         {`{}`, "endpoint: Required field 'endpoint' is missing; api_key: Required field 'api_key' is missing"},
		"nothing":         {``, "endpoint: Required field 'endpoint' is missing; api_key: Required field 'api_key' is missing"},
		"blank":           {`{"endpoint":" ","api_key":"k"}`, "endpoint: Required field 'endpoint' is missing"},
		"too small":       {`{"endpoint":"http://x","api_key":"k","timeout":4}`, "timeout: Field 'timeout' must be >= 5"},
		"too large":       {`{"endpoint":"http://x","api_key":"k","timeout":301}`, "timeout: Field 'timeout' must be <= 300"},
		"fraction":        {`{"endpoint":"http://x","api_key":"k","timeout":5.5}`, "timeout: Field 'timeout' must be an integer"},
		"beyond integers": {`{"endpoint":"http://x","api_key":"k","timeout":1e30}`, "timeout: Field 'timeout' must be <= 300"},
		"text for number": {`{"endpoint":"http://x","api_key":"k","timeout":"5"}`, "timeout: Field 'timeout' must be an integer"},
		"number for text": {`{"endpoint":1,"api_key":"k"}`, "endpoint: Field 'endpoint' must be a string"},
		"not a boolean":   {`{"endpoint":"http://x","api_key":"k","tls":1}`, "tls: Field 'tls' must be a boolean"},
		"not a list":      {`{"endpoint":"http://x","api_key":"k","hosts":"a"}`, "hosts: Field 'hosts' must be a list of strings"},
		"no option":       {`{"endpoint":"http://x","api_key":"k","region":"mars"}`, "region: Field 'region' must be one of: us, eu"},
		"unknown":         {`{"endpoint":"http://x","api_key":"k","zeal":1}`, "zeal: Unknown field 'zeal'"},
		"of its own":      {`{"endpoint":"ftp://x","api_key":"k"}`, "endpoint: not a URL"},
		"two":             {`{"endpoint":1,"api_key":"k","timeout":1}`, "endpoint: Field 'endpoint' must be a string; timeout: Field 'timeout' must be >= 5"},
		"not an object":   {`[1]`, ": the configuration is not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			var messages []string
			for _, w := range schema.Decode([]byte(c.raw), newConfig()) {
				messages = append(messages, w.Field+": "+w.Message)
			}
			if got := strings.Join(messages, "; "); got != c.wrong {
				t.Errorf("got %q, want %q", got, c.wrong)
			}
		})
	}
	c := newConfig()
	if invalid := schema.Decode([]byte(`{"endpoint":"http://x","api_key":"k","timeout":7,"hosts":["a","b"]}`), c); invalid != nil {
		t.Fatal(invalid)
	}
	if c.Timeout != 7 || c.Region != "us" || len(c.Hosts) != 2 || c.Key != "k" {
		t.Errorf("got %+v", c)
	}
}

func TestFieldsDescribeStruct(t *testing.T) {
	fields := schema.Fields(newConfig())
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"name":"endpoint","type":"string","label":"Endpoint","description":"Where it listens.","placeholder":"http://localhost:9385","required":true}`,
		`{"name":"api_key","type":"string","label":"Key","required":true,"secret":true}`,
		`{"name":"timeout","type":"integer","label":"timeout","default":30,"min":5,"max":300}`,
		`{"name":"tls","type":"boolean","label":"tls","default":false}`,
		`{"name":"image","type":"string","label":"image","default":"a:1","readonly":true}`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s\nis not in\n%s", want, raw)
		}
	}
	doc := schema.JSON(fields)
	if got := doc["order"].([]string); strings.Join(got, " ") != "endpoint api_key region timeout price tls hosts image" {
		t.Errorf("order %v", got)
	}
	if p := doc["properties"].(map[string]any)["api_key"].(map[string]any); p["writeOnly"] != true || p["format"] != "password" {
		t.Errorf("secret %v", p)
	}
}

func TestMaskedSecretIsRestored(t *testing.T) {
	fields := schema.Fields(newConfig())
	const secret = "sk-0123456789abcd"
	masked, err := schema.MaskSecrets([]byte(`{"endpoint":"http://x","api_key":"`+secret+`"}`), fields)
	if err != nil || strings.Contains(string(masked), "0123") || !strings.Contains(string(masked), `"****abcd"`) {
		t.Fatalf("%s, %v", masked, err)
	}
	for name, c := range map[string]struct{ given, want string }{
		"as it was shown": {`{"api_key":"****abcd"}`, secret},
		"another":         {`{"api_key":"new-secret-value"}`, "new-secret-value"},
		"another mask":    {`{"api_key":"****wxyz"}`, "****wxyz"},
	} {
		raw, err := schema.RestoreSecrets([]byte(c.given), []byte(`{"api_key":"`+secret+`"}`), fields)
		if err != nil || !strings.Contains(string(raw), `"`+c.want+`"`) {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
	for s, want := range map[string]string{"": "", "short": "****", "elevenchars": "****", "twelve chars": "****hars"} {
		if got := schema.Mask(s); got != want {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
}

// TestMaskedSecretRequiresSameRecipient verifies that a masked secret keeps its value only if its
// recipient is unchanged.
func TestMaskedSecretRequiresSameRecipient(t *testing.T) {
	type config struct {
		URL     string `json:"url" form:"destination"`
		Private bool   `json:"private" form:"destination"`
		Port    int    `json:"port" form:"destination"`
		Key     string `json:"key" form:"secret"`
		Note    string `json:"note"`
	}
	fields := schema.Fields(&config{Port: 22})
	const before = `{"url":"https://a.test","key":"sk-0123456789abcd","note":"x"}`
	for given, field := range map[string]string{
		`{"url":"https://b.test","key":"****abcd"}`:                               "url",
		`{"key":"****abcd"}`:                                                      "url",
		`{"url":"https://a.test","private":true,"key":"****abcd"}`:                "private",
		`{"url":"https://a.test","port":23,"key":"****abcd"}`:                     "port",
		`{"url":"https://a.test","port":22,"private":false,"key":"****abcd"}`:     "",
		`{"url":"https://a.test","private":null,"key":"****abcd","note":"other"}`: "",
		`{"url":"https://b.test","key":"sk-another-value"}`:                       "",
		`{"url":"https://b.test"}`:                                                "",
	} {
		raw, err := schema.RestoreSecrets([]byte(given), []byte(before), fields)
		if field == "" && (err != nil || !json.Valid(raw)) || field != "" && (err == nil || brig.AsError(err).Field != field || !strings.Contains(brig.AsError(err).Hint, "give key again")) {
			t.Errorf("%s: %s, %v, want the field %q", given, raw, err, field)
		}
	}
}

// TestEnvironmentSecretRequiresSameRecipient verifies that a secret from the server's
// environment is sent only to the environment's recipient or to the previous one. Control:
// if the request contains the secret, it may set any recipient.
func TestEnvironmentSecretRequiresSameRecipient(t *testing.T) {
	type config struct {
		URL  string `json:"url" form:"destination"`
		Key  string `json:"key" form:"secret"`
		Note string `json:"note"`
	}
	fields := schema.Fields(&config{URL: "https://env.test", Key: "sk-of-the-environment"})
	const moved = `{"url":"https://b.test"}`
	for _, c := range []struct {
		before, given string
		wrong         bool
	}{
		{"", `{"note":"x"}`, false},
		{"", `{"url":"https://env.test","key":null}`, false},
		{"", moved, true},
		{"", `{"url":"https://b.test","key":null}`, true},
		{"", `{"url":"https://b.test","key":"sk-given-by-the-caller"}`, false},
		{moved, `{"url":"https://b.test","note":"x"}`, false},
		{moved, `{"url":"https://c.test"}`, true},
		{moved, `{}`, true},
		{`{"url":"https://b.test","key":"sk-0123456789abcd"}`, moved, true},
		{`{"url":"https://b.test","key":"sk-0123456789abcd"}`, `{"url":"https://b.test","key":"****abcd"}`, false},
		{`{"url":"https://b.test","key":"sk-0123456789abcd"}`, `{}`, false},
	} {
		_, err := schema.RestoreSecrets([]byte(c.given), []byte(c.before), fields)
		if (err != nil) != c.wrong || c.wrong && (brig.AsError(err).Field != "url" || !strings.Contains(brig.AsError(err).Hint, "give key again")) {
			t.Errorf("%s after %s: %v", c.given, c.before, err)
		}
	}
	// The recipient may change if the environment contains no secret for the
	// field.
	if _, err := schema.RestoreSecrets([]byte(moved), nil, schema.Fields(&config{URL: "https://env.test"})); err != nil {
		t.Errorf("control: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"endpoint":"http://x","timeout":7}`))
	f.Add([]byte(`{"hosts":[null],"tls":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := newConfig()
		if schema.Decode(raw, c) == nil && (c.Timeout < 5 || c.Timeout > 300 || c.Endpoint == "" || c.Key == "") {
			t.Errorf("%q gave %+v", raw, c)
		}
	})
}
