// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

var tokenKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// The bounds of a token's life, in seconds (pkg/apis/authentication/validation).
const minTokenLife, maxTokenLife = 600, 1 << 32

// requestToken issues a token of a ServiceAccount ("kubectl create token").
func (s *Server) requestToken(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodPost {
		return notAllowed(r)
	}
	_, strict, err := writeOptions(r, "")
	if err != nil {
		return err
	}
	in, err := decodeBody(w, r.Request, tokenKind, strict)
	if err != nil {
		return err
	}
	out := in.(*authenticationv1.TokenRequest)
	setTokenDefaults(out)
	if life := *out.Spec.ExpirationSeconds; life < minTokenLife || life > maxTokenLife {
		return apierrors.NewInvalid(tokenKind.GroupKind(), r.key.Name, field.ErrorList{field.Invalid(
			field.NewPath("spec", "expirationSeconds"), life,
			"may not specify a duration less than 10 minutes or larger than 2^32 seconds")})
	}
	ask := store.TokenRequest{
		Namespace: r.key.Namespace, Account: r.key.Name, Audiences: out.Spec.Audiences,
		Life: time.Duration(*out.Spec.ExpirationSeconds) * time.Second,
	}
	if b := out.Spec.BoundObjectRef; b != nil && b.Kind == "Pod" {
		pod, ok := store.Get[*corev1.Pod](s.store, r.key.Namespace, b.Name)
		if !ok || b.UID != "" && b.UID != pod.UID {
			return notFound(corev1.Resource("pods"), b.Name)
		}
		ask.Pod = pod
	}
	token, end, err := s.store.IssueToken(ask)
	if err != nil {
		return err
	}
	out.Namespace, out.Name, out.CreationTimestamp = r.key.Namespace, r.key.Name, metav1.Now()
	out.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(end)}
	f, err := negotiate(r.Request, false)
	if err != nil {
		return err
	}
	f.write(w, http.StatusCreated, out)
	return nil
}

func setTokenDefaults(t *authenticationv1.TokenRequest) {
	if t.Spec.ExpirationSeconds == nil {
		t.Spec.ExpirationSeconds = ptr.To[int64](3600)
	}
	if len(t.Spec.Audiences) == 0 {
		t.Spec.Audiences = []string{store.TokenIssuer}
	}
}
