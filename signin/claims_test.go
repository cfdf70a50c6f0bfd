package signin

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestUnsafeEmailIsIgnored(t *testing.T) {
	for address, want := range map[string]string{
		"Ann@Example.com": "ann@example.com",
		// Unicode folds these to ann's and kate's.
		"\u212aate@example.com": "\u212aate@example.com",
		"kate@\u212aelvin.com":  "kate@\u212aelvin.com",
		"ann@exam\u200bple.com": "",
		"ann\u202e@example.com": "",
		"ann\u0000@example.com": "",
		"ann\u0085@example.com": "",
		"ann\ufffd@example.com": "",
		"ann\u2066@example.com": "",
	} {
		text, err := json.Marshal(address)
		if err != nil {
			t.Fatal(err)
		}
		c := claims{"email": text, "email_verified": json.RawMessage("true")}
		if got := c.email(); got != want {
			t.Errorf("%q is read as %q, want %q", address, got, want)
		}
	}
	if got := (claims{"email": json.RawMessage(`"ann\ud800@example.com"`), "email_verified": json.RawMessage("true")}).email(); got != "" {
		t.Errorf("half a character is read as %q", got)
	}
}

func TestUnsafeClaimValuesAreIgnored(t *testing.T) {
	c := claims{"groups": json.RawMessage(`["dev","op\u202es","ops\u200b"," x"]`), "org": json.RawMessage(`"acme\u0000"`)}
	if got := c.stringValues("groups"); !slices.Equal(got, []string{"dev", " x"}) {
		t.Errorf("groups are %q", got)
	}
	if got := c.stringValues("org"); got != nil {
		t.Errorf("the tenant is %q", got)
	}
}

func TestAmbiguousClaimNamesAreRejected(t *testing.T) {
	for doc, ok := range map[string]bool{
		`{"iss":"a","sub":"b","Groups":["x"],"realm_access":{"roles":["a"]}}`: true,
		`{"iss":"a","ISS":"b"}`:          false,
		`{"EXP":1}`:                      false,
		`{"i\u017fs":"b"}`:               false,
		`{"sub":"a","sub":"b"}`:          false,
		`{"Email_Verified":true}`:        false,
		`{"AppID":"x"}`:                  false,
		`{"realm_access":{"a":1,"a":2}}`: false,
		`[]`:                             false,
	} {
		c := claims{}
		if err := c.read([]byte(doc)); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %v", doc, err, ok)
		}
	}
}
