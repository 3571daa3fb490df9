// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// TokenIssuer is the issuer of the tokens of ServiceAccounts, and their audience unless another is asked for.
const TokenIssuer = "https://kubernetes.default.svc.cluster.local"

// TokenRequest asks for a token of a ServiceAccount.
type TokenRequest struct {
	Namespace, Account string
	Audiences          []string      // empty means TokenIssuer
	Life               time.Duration // how long it is valid; 0 means an hour
	Pod                *corev1.Pod   // the token is valid as long as this pod exists; nil: whatever exists
}

// claims are those of a token, as in Kubernetes (pkg/serviceaccount/claims.go).
type claims struct {
	Audiences []string `json:"aud"`
	Expires   int64    `json:"exp"`
	Issued    int64    `json:"iat"`
	NotBefore int64    `json:"nbf"`
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Private   struct {
		Namespace string  `json:"namespace"`
		Account   object  `json:"serviceaccount"`
		Pod       *object `json:"pod,omitempty"`
	} `json:"kubernetes.io"`
}

type object struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// newTokenKey returns the key that signs tokens.
func newTokenKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return key
}

// tokenHeader begins every token: a JSON Web Token (RFC 7519) that is signed with HMAC and SHA-256.
var tokenHeader = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))

func (s *Store) sign(text string) string {
	h := hmac.New(sha256.New, s.tokenKey)
	h.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// IssueToken returns a token of a ServiceAccount and when it expires. The error is a NotFound if there is no such
// account.
func (s *Store) IssueToken(r TokenRequest) (string, time.Time, error) {
	account, ok := Get[*corev1.ServiceAccount](s, r.Namespace, r.Account)
	if !ok {
		return "", time.Time{}, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), r.Account)
	}
	if r.Life == 0 {
		r.Life = time.Hour
	}
	if len(r.Audiences) == 0 {
		r.Audiences = []string{TokenIssuer}
	}
	now := s.now()
	end := now.Add(r.Life)
	c := claims{Audiences: r.Audiences, Issued: now.Unix(), NotBefore: now.Unix(), Expires: end.Unix(),
		Issuer: TokenIssuer, Subject: fmt.Sprintf("system:serviceaccount:%s:%s", account.Namespace, account.Name)}
	c.Private.Namespace = account.Namespace
	c.Private.Account = object{account.Name, account.UID}
	if r.Pod != nil {
		c.Private.Pod = &object{r.Pod.Name, r.Pod.UID}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return "", time.Time{}, err
	}
	text := tokenHeader + "." + base64.RawURLEncoding.EncodeToString(data)
	return text + "." + s.sign(text), end, nil
}

// CheckToken returns the user of a token that IssueToken returned, "system:serviceaccount:NAMESPACE:NAME". A token that
// has expired, is for another audience, or whose account or pod is gone, is an error.
func (s *Store) CheckToken(token string) (string, error) {
	text, signature, _ := cutLast(token, ".")
	header, payload, _ := strings.Cut(text, ".")
	if header != tokenHeader || !hmac.Equal([]byte(signature), []byte(s.sign(text))) {
		return "", errors.New("the token is not one of this cluster")
	}
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", err
	}
	var c claims
	if err := json.Unmarshal(data, &c); err != nil {
		return "", err
	}
	if s.now().Unix() >= c.Expires {
		return "", errors.New("the token has expired")
	}
	if !slices.Contains(c.Audiences, TokenIssuer) {
		return "", fmt.Errorf("the token is for %v", c.Audiences)
	}
	private := &c.Private
	account, ok := Get[*corev1.ServiceAccount](s, private.Namespace, private.Account.Name)
	if !ok || account.UID != private.Account.UID {
		return "", errors.New("the ServiceAccount of the token is gone")
	}
	if private.Pod != nil {
		pod, ok := Get[*corev1.Pod](s, private.Namespace, private.Pod.Name)
		if !ok || pod.UID != private.Pod.UID {
			return "", errors.New("the pod of the token is gone")
		}
	}
	return c.Subject, nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
