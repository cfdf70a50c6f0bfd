package egress

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// findForeignCredentials returns the reason why the exclusive secrets of a host forbid a request. The
// reason is a header field or a query parameter that may carry credentials other than the secrets'
// placeholders. Paths and bodies are the content of a request, and are not checked.
func findForeignCredentials(r *http.Request, bound []Secret) (reason string) {
	if !slices.ContainsFunc(bound, func(s Secret) bool { return s.Exclusive }) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		refuses := refusingSecret(bound, "", name)
		if isHarmlessHeader(name) || refuses == "" {
			continue
		}
		for _, v := range r.Header[name] {
			good, entry := strings.TrimSpace(v) == "" || isAllPlaceholders(bound, v, name == "Cookie"), name
			if _, pair, ok := parseBasic(name, v); ok {
				user, password, _ := strings.Cut(pair, ":")
				if good = isOurPair(bound, user, password); !good && isPlaceholder(bound, password) {
					entry = allowUser + "NAME" // the name of a user may itself be a credential, so it is not quoted
				}
			} else if scheme, rest, ok := strings.Cut(strings.TrimSpace(v), " "); ok && isAuthScheme(scheme) {
				good = isAllPlaceholders(bound, rest, false)
			}
			if !good {
				return fmt.Sprintf("its header %s may have credentials of its own (to let it pass, add %q to allow of the exclusive secret %s)", name, entry, refuses)
			}
		}
	}
	for part := range strings.FieldsFuncSeq(r.URL.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		key, value, _ := strings.Cut(part, "=")
		if k, err := url.QueryUnescape(key); err == nil {
			key = k
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		refuses := refusingSecret(bound, "?", key)
		if isHarmlessParameter(key) || refuses == "" || isAllPlaceholders(bound, value, false) || value == "" && isPlaceholder(bound, key) {
			continue
		}
		return fmt.Sprintf("its query parameter %q may have credentials of its own (to let it pass, add %q to allow of the exclusive secret %s)", clip(key), "?"+clip(key), refuses)
	}
	return ""
}

// isPlaceholder reports whether a text is exactly a placeholder.
func isPlaceholder(bound []Secret, text string) bool {
	return slices.ContainsFunc(bound, func(s Secret) bool { return text == s.Placeholder })
}

// isAllPlaceholders reports whether each word of a text is a placeholder. A placeholder beside or within
// foreign credentials does not make them acceptable: a server uses only one of several words, or a
// part of a word. A word may contain a name before the placeholder (token=..., or any name in a
// cookie), and the placeholder may be in quotes.
func isAllPlaceholders(bound []Secret, text string, cookie bool) bool {
	words := strings.FieldsFunc(text, isSeparator)
	return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool {
		if name, value, ok := strings.Cut(w, "="); ok && isToken(name) && (cookie || credentialNames[strings.ToLower(name)]) {
			w = value
		}
		if len(w) > 2 && w[0] == '"' && w[len(w)-1] == '"' {
			w = w[1 : len(w)-1]
		}
		return !isPlaceholder(bound, w)
	})
}

// credentialNames are the names that a header field may give to a placeholder.
// Another name may itself be the credential that a server uses.
var credentialNames = newSet("access-token access_token api-key api_key apikey auth credential credentials id key oauth-token oauth_token password secret token")

// allowUser begins an entry of Allow that allows the user of basic credentials.
const allowUser = "user:"

// isOurPair reports whether a placeholder is the credential of a basic pair.
// Many servers take the credential from one half of it and ignore the other, so
// the other half is a placeholder, empty, or a word that is not a credential.
// The user may also be one that the secrets allow.
func isOurPair(bound []Secret, user, password string) bool {
	switch {
	case isPlaceholder(bound, password):
		return user == "" || basicWords[strings.ToLower(user)] || isPlaceholder(bound, user) || refusingSecret(bound, allowUser, user) == ""
	case isPlaceholder(bound, user):
		return password == "" || basicWords[strings.ToLower(password)]
	}
	return false
}

// basicWords are the words that services document for the half of basic
// credentials that has no meaning. None is the credential of an account.
var basicWords = newSet(`
	__token__ _ _json_key _json_key_base64 _token - any anonymous api api-key api-token api_key api_token apikey aws default
	build_token ci git gitlab-ci-token job_token jwt key none oauth oauth2 oauth2accesstoken oauth-token pat
	password private-token project_token token u unused user username x x-access-token x-bitbucket-api-token-auth
	x-oauth-basic x-token-auth
`)

// refusingSecret returns the name of the first exclusive secret that does not allow a field or
// parameter, or "" if all secrets allow it. Field names are case-insensitive.
func refusingSecret(bound []Secret, mark, name string) string {
	for _, s := range bound {
		if s.Exclusive && !slices.ContainsFunc(s.Allow, func(a string) bool {
			a, ok := strings.CutPrefix(a, mark)
			if !ok || mark == "" && strings.HasPrefix(a, "?") {
				return false
			}
			if start, ok := strings.CutSuffix(a, "*"); ok {
				return len(name) >= len(start) && strings.EqualFold(name[:len(start)], start)
			}
			return strings.EqualFold(a, name)
		}) {
			return s.Name
		}
	}
	return ""
}

// isSeparator reports whether a character separates two credentials.
func isSeparator(r rune) bool { return r <= ' ' || r == 0x7f || r == ',' || r == ';' }

// authSchemes are the words that may precede credentials. Any other word may
// itself be a credential.
var authSchemes = newSet("apikey api-key basic bearer bot deepl-auth-key dpop geniekey key klaviyo-api-key oauth splunk ssws token")

func isAuthScheme(word string) bool { return authSchemes[strings.ToLower(word)] }

// harmlessHeaders are the header fields that no known server accepts as
// credentials.
//
//nolint:misspell // ect is a field name
var harmlessHeaders = newSet(`
	accept accept-charset accept-datetime accept-encoding accept-language accept-patch accept-ranges
	access-control-request-headers access-control-request-method access-control-request-private-network
	allow cache-control connection content-digest content-disposition content-encoding content-language
	content-length content-location content-md5 content-range content-type date depth destination digest
	dnt downlink ect expect host http2-settings idempotency-key if-match if-modified-since if-none-match
	if-range if-unmodified-since keep-alive last-modified max-forwards origin overwrite pragma prefer
	priority range referer repr-digest request-range rtt save-data server-timing te trailer
	transfer-encoding upgrade upgrade-insecure-requests user-agent vary via want-content-digest
	want-digest want-repr-digest warning
	sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user sec-gpc sec-purpose
	sec-websocket-extensions sec-websocket-key sec-websocket-version
	grpc-accept-encoding grpc-encoding grpc-timeout connect-accept-encoding connect-content-encoding
	connect-protocol-version connect-timeout-ms x-grpc-web x-user-agent
	traceparent tracestate x-correlation-id x-request-id x-requested-with
	x-http-method x-http-method-override x-method-override
	anthropic-beta anthropic-dangerous-direct-browser-access anthropic-version git-protocol openai-beta
	stripe-version x-github-api-version x-goog-api-client x-github-next-global-id notion-version
	npm-command npm-scope
`)

// harmlessPrefixes are prefixes of field names that are all harmless.
var harmlessPrefixes = []string{"sec-ch-", "x-stainless-"}

func isHarmlessHeader(field string) bool {
	field = strings.ToLower(field)
	return harmlessHeaders[field] || slices.ContainsFunc(harmlessPrefixes, func(f string) bool { return strings.HasPrefix(field, f) })
}

// harmlessParameters are the query parameters that select content and do not
// identify the client, in lower case and without "-", "_" and "$".
var harmlessParameters = newSet(`
	q query search filter filters sort sortby sortdir sortorder order orderby orderdir direction dir asc desc
	page pages pageno pagenumber pageindex pagesize pagetoken nextpagetoken continuationtoken perpage limit
	maxresults maxkeys maxitems max min top skip offset start startat startindex end count size from to since
	until before after begin startdate enddate starttime endtime startingafter endingbefore cursor first last
	fields field include includes exclude excludes expand embed select columns groupby distinct
	format alt output accept pretty prettyprint indent lang language locale hl gl cc country region currency
	units timezone tz encoding charset
	version v apiversion ref refs branch tag tags sha rev revision commit path paths recursive depth
	type types kind kinds category categories state status statuses level visibility affiliation milestone
	labels label topic topics author assignee creator mentioned archived draft
	id ids date dates day week month year hour time timestamp updatedsince createdafter createdbefore
	lat lon lng latitude longitude radius bbox zoom width height quality
	stream watch follow tail wait timeout timeoutseconds dryrun verbose explain resourceversion labelselector
	fieldselector prefix delimiter listtype uploads uploadid partnumber versioning acl service method httpmethod
	model name title text symbol symbols interval range
`)

func isHarmlessParameter(key string) bool {
	key, _, _ = strings.Cut(strings.ToLower(key), "[") // filter[state], tags[]
	return harmlessParameters[strings.NewReplacer("_", "", "-", "", "$", "").Replace(key)]
}

func newSet(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}

// isCredentialField reports whether a trailer field identifies the client.
func isCredentialField(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch name {
	case "authorization", "proxy-authorization", "cookie", "cookie2", "api-key", "apikey", "private-token", "x-amz-security-token":
		return true
	}
	return slices.ContainsFunc([]string{"-api-key", "-apikey", "-auth-token", "-access-token", "-authorization", "-auth-key", "-subscription-key"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}
