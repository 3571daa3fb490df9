// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logs serves the subresource log.
func (s *Server) logs(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodGet {
		return notAllowed(r)
	}
	pod, err := s.podOf(r)
	if err != nil {
		return err
	}
	container, err := containerOf(r, pod)
	if err != nil {
		return err
	}
	o, err := logOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	o.Container = container
	out := &textWriter{w: w}
	if pod.Spec.NodeName != "" { // else it has printed nothing
		err = s.containers.Logs(r.Context(), r.key, container, o, out)
	}
	var known apierrors.APIStatus
	switch {
	case err == nil || out.begun: // it is too late for an error
		out.begin()
		return nil
	case errors.As(err, &known):
		return err
	default:
		return apierrors.NewBadRequest(err.Error()) // as a kubelet's errors are passed on
	}
}

// logOptions reads the options of a log. The names are those of PodLogOptions, of which k8s.io/api has no decoder.
func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{}
	for name, into := range map[string]*bool{
		"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
	} {
		*into = q.Get(name) == "true" || q.Get(name) == "1"
	}
	for name, into := range map[string]**int64{
		"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes,
	} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil || n < 0 || n == 0 && name != "tailLines" {
			return nil, fmt.Errorf("%s: wants a number of at least 1, or 0 for tailLines, got %q", name, q.Get(name))
		}
		*into = &n
	}
	if text := q.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("sinceTime: wants a time such as 2006-01-02T15:04:05Z, got %q", text)
		}
		since := metav1.NewTime(t)
		o.SinceTime = &since
	}
	if o.SinceSeconds != nil && o.SinceTime != nil {
		return nil, errors.New("at most one of sinceTime or sinceSeconds may be specified")
	}
	return o, nil
}

// textWriter sends text to a client as it comes.
type textWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (t *textWriter) begin() {
	if !t.begun {
		t.begun = true
		t.w.Header().Set("Content-Type", "text/plain")
		t.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (t *textWriter) Write(b []byte) (int, error) {
	t.begin()
	n, err := t.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, http.NewResponseController(t.w).Flush()
}
