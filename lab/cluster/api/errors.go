// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/viplab/viplab/lab/cluster/store"
)

var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try " +
	"again")

func notFound(gr schema.GroupResource, name string) error { return apierrors.NewNotFound(gr, name) }

// statusOf returns an error as a Status of the Kubernetes API.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, store.ErrTooOld):
		known = apierrors.NewResourceExpired(err.Error())
	default:
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return plainName(&status)
}

// plainName removes the namespace from the name of an object in an error of the store, because the Kubernetes API omits
// it.
func plainName(s *metav1.Status) *metav1.Status {
	if s.Details == nil {
		return s
	}
	long := s.Details.Name
	if i := strings.LastIndex(long, "/"); i >= 0 {
		details := *s.Details
		details.Name = long[i+1:]
		s.Details = &details
		s.Message = strings.Replace(s.Message, strconv.Quote(long), strconv.Quote(details.Name), 1)
	}
	return s
}

// fail answers with an error, in the client's format if the server supports it.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	f, bad := negotiate(r, false)
	if bad != nil {
		f = format{SerializerInfo: mediaTypes()[0]}
	}
	f.as = plain
	f.write(w, int(status.Code), status)
}

// writeJSON writes an answer that is not an object of the API.
func writeJSON(w http.ResponseWriter, contentType string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
}
