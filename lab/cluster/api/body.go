// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxBody is the limit of the API server, in bytes.
const maxBody = 3 << 20

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", large.Limit))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return data, nil
}

// strictness is a value of fieldValidation: how to treat unknown and duplicate fields. The default is a warning.
type strictness string

// check turns the mistakes that a decoder found into an error, warnings or nothing.
func (s strictness) check(w http.ResponseWriter, mistakes []error) error {
	if len(mistakes) == 0 {
		return nil
	}
	switch string(s) {
	case metav1.FieldValidationIgnore:
	case metav1.FieldValidationStrict:
		return runtime.NewStrictDecodingError(mistakes)
	default:
		for _, m := range mistakes {
			warn(w, m.Error())
		}
	}
	return nil
}

// warn adds a warning for the person at the client. The format is that of RFC 7234, section 5.5.
func warn(w http.ResponseWriter, text string) {
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ").Replace(text)
	w.Header().Add("Warning", fmt.Sprintf(`299 - "%s"`, text))
}

// decodeBody reads an object of a known kind from the body of a request.
func decodeBody(w http.ResponseWriter, r *http.Request, gvk schema.GroupVersionKind,
	s strictness) (runtime.Object, error) {
	info, err := bodyFormat(r)
	if err != nil {
		return nil, err
	}
	data, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	return decode(w, info.StrictSerializer, data, gvk, s)
}

func decode(w http.ResponseWriter, d runtime.Decoder, data []byte, want schema.GroupVersionKind,
	s strictness) (runtime.Object, error) {
	into, err := scheme().New(want)
	if err != nil {
		return nil, err
	}
	obj, got, err := d.Decode(data, &want, into)
	strict, mistaken := runtime.AsStrictDecodingError(err)
	if mistaken && obj != nil {
		err = s.check(w, strict.Errors())
	}
	if err != nil {
		return nil, undecodable(err, want, got)
	}
	if *got != want {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s of %s",
			got.Kind, got.GroupVersion(), want.Kind, want.GroupVersion()))
	}
	obj.GetObjectKind().SetGroupVersionKind(want)
	return obj, nil
}

// undecodable returns the API server's error for a body that cannot be decoded.
func undecodable(err error, want schema.GroupVersionKind, got *schema.GroupVersionKind) error {
	if got != nil && got.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			got.Kind, got.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v",
		want.Kind, err))
}
