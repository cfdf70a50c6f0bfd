package agentrun

import (
	"net/http"
	"testing"
	"time"
)

// TestDataSignature uses test vectors from the service's own client.
func TestDataSignature(t *testing.T) {
	c := credentials{
		id: "LTAI5t5opp3xMWk2B3a4gZVq", secret: "secret", region: "cn-hangzhou",
		now: func() time.Time { return time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC) },
	}
	for _, v := range []struct{ method, path, contentType, headers, signature string }{
		{"GET", "/sandboxes/sbx-xxx/health", "", "host;x-acs-content-sha256;x-acs-date", "e1479ea1aec37e55f91d82b1ccc48df2feef04184a911f91a3e3fe0e27d02610"},
		{"GET", "/path?foo=bar&zoo=", "", "host;x-acs-content-sha256;x-acs-date", "2de34f2c0ef3d6f0f6460f994ee3fea8c940241fcc2ff2f008a776f1be9b4dba"},
		{"POST", "/path?foo=bar&zoo=", "", "host;x-acs-content-sha256;x-acs-date", "a0d4e04405ddf83d93cf8b30c6064c1a68a298cf95ca6ff56be04f515b98ddbe"},
		{"POST", "/path?foo=bar&zoo=", "application/json", "content-type;host;x-acs-content-sha256;x-acs-date", "fdcde808b0dc7526d8083e681ca9a64728e5c1e67e4c92735dfb2268ecc71fb2"},
	} {
		r, err := http.NewRequest(v.method, "https://1431999136518149-ram.agentrun-data.cn-hangzhou.aliyuncs.com"+v.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.contentType != "" {
			r.Header.Set("Content-Type", v.contentType)
		}
		r.Header.Set("User-Agent", "not signed")
		if err := c.signData(r); err != nil {
			t.Fatal(err)
		}
		want := "AGENTRUN4-HMAC-SHA256 Credential=LTAI5t5opp3xMWk2B3a4gZVq/20260306/cn-hangzhou/agentrun/aliyun_v4_request,SignedHeaders=" +
			v.headers + ",Signature=" + v.signature
		if got := r.Header.Get("Agentrun-Authorization"); got != want {
			t.Errorf("%s %s is signed\n%s\nwant\n%s", v.method, v.path, got, want)
		}
	}
}
