package agentrun

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Signature methods of the data plane and of the control plane.
const (
	dataAlgorithm    = "AGENTRUN4-HMAC-SHA256"
	controlAlgorithm = "ACS3-HMAC-SHA256"
	unsignedPayload  = "UNSIGNED-PAYLOAD"
	// controlVersion is the version of the control plane's API.
	controlVersion = "2025-09-10"
)

// credentials identify the account of a request.
type credentials struct {
	id, secret, token, region string
	now                       func() time.Time
}

// signData signs a request for the data plane. The body is not signed: TLS
// protects it.
func (c *credentials) signData(r *http.Request) error {
	now := c.now().UTC()
	c.setSignedHeaders(r, now, unsignedPayload)
	names, canonical := canonicalRequest(r, unsignedPayload, func(string) bool { return true })
	day := now.Format("20060102")
	key := []byte("aliyun_v4" + c.secret)
	for _, part := range []string{day, c.region, "agentrun", "aliyun_v4_request"} {
		key = mac(key, part)
	}
	signature := mac(key, dataAlgorithm+"\n"+digest(canonical))
	r.Header.Set("Agentrun-Authorization", dataAlgorithm+" Credential="+c.id+"/"+day+"/"+c.region+"/agentrun/aliyun_v4_request,SignedHeaders="+
		names+",Signature="+hex.EncodeToString(signature))
	return nil
}

// signControl signs a request for an action of the control plane.
func (c *credentials) signControl(action string, body []byte) func(*http.Request) error {
	return func(r *http.Request) error {
		payload := digest(string(body))
		c.setSignedHeaders(r, c.now().UTC(), payload)
		r.Header.Set("X-Acs-Action", action)
		r.Header.Set("X-Acs-Version", controlVersion)
		r.Header.Set("X-Acs-Signature-Nonce", rand.Text())
		r.Header.Set("Accept", "application/json")
		names, canonical := canonicalRequest(r, payload, func(name string) bool {
			return strings.HasPrefix(name, "x-acs-") || name == "host" || name == "content-type"
		})
		signature := mac([]byte(c.secret), controlAlgorithm+"\n"+digest(canonical))
		r.Header.Set("Authorization", controlAlgorithm+" Credential="+c.id+",SignedHeaders="+names+",Signature="+hex.EncodeToString(signature))
		return nil
	}
}

// setSignedHeaders sets the headers that both methods sign.
func (c *credentials) setSignedHeaders(r *http.Request, now time.Time, payload string) {
	r.Header.Set("X-Acs-Date", now.Format("2006-01-02T15:04:05Z"))
	r.Header.Set("X-Acs-Content-Sha256", payload)
	if c.token != "" {
		r.Header.Set("X-Acs-Security-Token", c.token)
	}
}

// canonicalRequest returns the canonical form of a request for its signature,
// and the names of the signed headers.
func canonicalRequest(r *http.Request, payload string, signed func(name string) bool) (names, canonical string) {
	headers := map[string]string{"host": r.URL.Host}
	for name, values := range r.Header {
		if name := strings.ToLower(name); signed(name) && (strings.HasPrefix(name, "x-acs-") || name == "content-type") {
			headers[name] = strings.TrimSpace(strings.Join(values, ","))
		}
	}
	var order []string
	for name := range headers {
		order = append(order, name)
	}
	slices.Sort(order)
	var lines strings.Builder
	for _, name := range order {
		lines.WriteString(name + ":" + headers[name] + "\n")
	}
	names = strings.Join(order, ";")
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	return names, strings.Join([]string{r.Method, path, canonicalQuery(r.URL.Query()), lines.String(), names, payload}, "\n")
}

// canonicalQuery returns a query sorted by name, escaped as in RFC 3986.
func canonicalQuery(q url.Values) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(q.Encode())
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
