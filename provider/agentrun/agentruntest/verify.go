package agentruntest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// skew is the maximum difference between a request's time and the server's.
const skew = 15 * time.Minute

// signedHeader is the parsed content of an Authorization header.
type signedHeader struct {
	credential, signature string
	names                 []string
}

func parseAuthorization(header, algorithm string) (*signedHeader, error) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return nil, fmt.Errorf("the authorization is not %s", algorithm)
	}
	s := &signedHeader{}
	for part := range strings.SplitSeq(rest, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch k {
		case "Credential":
			s.credential = v
		case "SignedHeaders":
			s.names = strings.Split(v, ";")
		case "Signature":
			s.signature = v
		default:
			return nil, fmt.Errorf("the authorization has a part %q", k)
		}
	}
	if !slices.IsSorted(s.names) || !slices.Contains(s.names, "host") {
		return nil, errors.New("the signed headers are not in order, or without the host")
	}
	return s, nil
}

// checkData checks a request's AGENTRUN4-HMAC-SHA256 signature.
func (d *Double) checkData(c *call) error {
	s, err := parseAuthorization(c.r.Header.Get("Agentrun-Authorization"), "AGENTRUN4-HMAC-SHA256")
	if err != nil {
		return err
	}
	at, err := d.checkStamp(c.r, "UNSIGNED-PAYLOAD")
	if err != nil {
		return err
	}
	day := at.Format("20060102")
	if want := d.o.ID + "/" + day + "/" + d.o.Region + "/agentrun/aliyun_v4_request"; s.credential != want {
		return fmt.Errorf("the credential is %s, want %s", s.credential, want)
	}
	canonical, err := canonical(c.r, s.names, "UNSIGNED-PAYLOAD")
	if err != nil {
		return err
	}
	key := []byte("aliyun_v4" + d.o.Secret)
	for _, part := range []string{day, d.o.Region, "agentrun", "aliyun_v4_request"} {
		key = sum(key, part)
	}
	return compareSignature(s.signature, sum(key, "AGENTRUN4-HMAC-SHA256\n"+hash([]byte(canonical))), canonical)
}

// checkControl checks a request's ACS3-HMAC-SHA256 signature.
func (d *Double) checkControl(c *call, action string) error {
	s, err := parseAuthorization(c.r.Header.Get("Authorization"), "ACS3-HMAC-SHA256")
	if err != nil {
		return err
	}
	if _, err := d.checkStamp(c.r, hash(c.body)); err != nil {
		return err
	}
	if s.credential != d.o.ID {
		return fmt.Errorf("the credential is %s", s.credential)
	}
	for name, want := range map[string]string{"X-Acs-Version": "2025-09-10", "X-Acs-Action": action} {
		if got := c.r.Header.Get(name); got != want {
			return fmt.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	nonce := c.r.Header.Get("X-Acs-Signature-Nonce")
	d.mu.Lock()
	used := d.nonces[nonce]
	d.nonces[nonce] = true
	d.mu.Unlock()
	if nonce == "" || used {
		return errors.New("the nonce is missing, or was used before")
	}
	for name := range c.r.Header {
		if name := strings.ToLower(name); (strings.HasPrefix(name, "x-acs-") || name == "content-type") && !slices.Contains(s.names, name) {
			return fmt.Errorf("%s is not signed", name)
		}
	}
	canonical, err := canonical(c.r, s.names, hash(c.body))
	if err != nil {
		return err
	}
	return compareSignature(s.signature, sum([]byte(d.o.Secret), "ACS3-HMAC-SHA256\n"+hash([]byte(canonical))), canonical)
}

// checkStamp checks a request's time, payload and token.
func (d *Double) checkStamp(r *http.Request, payload string) (time.Time, error) {
	at, err := time.Parse("2006-01-02T15:04:05Z", r.Header.Get("X-Acs-Date"))
	switch {
	case err != nil:
		return at, fmt.Errorf("x-acs-date: %w", err)
	case time.Since(at).Abs() > skew:
		return at, errors.New("x-acs-date is not of now")
	case r.Header.Get("X-Acs-Content-Sha256") != payload:
		return at, fmt.Errorf("x-acs-content-sha256 is %q, want %q", r.Header.Get("X-Acs-Content-Sha256"), payload)
	case r.Header.Get("X-Acs-Security-Token") != d.o.Token:
		return at, errors.New("the security token is another one")
	}
	return at, nil
}

// canonical returns the canonical form of a received request, for its
// signature.
func canonical(r *http.Request, names []string, payload string) (string, error) {
	path, rawQuery, _ := strings.Cut(r.RequestURI, "?")
	var query []string
	for pair := range strings.SplitSeq(rawQuery, "&") {
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		k, err := url.QueryUnescape(k)
		v, err2 := url.QueryUnescape(v)
		if err != nil || err2 != nil {
			return "", errors.New("the query cannot be read")
		}
		query = append(query, escape(k)+"="+escape(v))
	}
	slices.Sort(query)
	var headers strings.Builder
	for _, n := range names {
		v := strings.Join(r.Header.Values(n), ",")
		if n == "host" {
			v = r.Host
		}
		if v == "" {
			return "", fmt.Errorf("the header %s is signed and not there", n)
		}
		headers.WriteString(n + ":" + strings.TrimSpace(v) + "\n")
	}
	return strings.Join([]string{r.Method, path, strings.Join(query, "&"), headers.String(), strings.Join(names, ";"), payload}, "\n"), nil
}

// escape percent-encodes all characters except the unreserved characters of
// RFC 3986.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func compareSignature(got string, want []byte, canonical string) error {
	if !hmac.Equal([]byte(got), []byte(hex.EncodeToString(want))) {
		return fmt.Errorf("the signature is not that of %q", canonical)
	}
	return nil
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hash(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
