// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// mediaTypes are the supported formats of bodies, JSON first.
var mediaTypes = sync.OnceValue(func() []runtime.SerializerInfo {
	return serializer.NewCodecFactory(scheme()).SupportedMediaTypes()
})

// kindOfView is the form in which a client wants objects.
type kindOfView string

const (
	plain    kindOfView = ""
	asTable  kindOfView = "Table"
	asMeta   kindOfView = "PartialObjectMetadata"
	asMetas  kindOfView = "PartialObjectMetadataList"
	anything            = "*/*"
)

// format is the requested format of an answer.
type format struct {
	runtime.SerializerInfo
	as     kindOfView
	pretty bool
}

// clause is one media type of an Accept header.
type clause struct {
	mediaType string
	params    map[string]string
	quality   float64
}

// accepted returns the media types that a client accepts, the preferred first. No header means "*/*".
func accepted(r *http.Request) []clause {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		header = anything
	}
	var out []clause
	for part := range strings.SplitSeq(header, ",") {
		mediaType, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{mediaType, params, 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.quality = q
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b clause) int { return cmp.Compare(b.quality, a.quality) })
	return out
}

// negotiate picks the format of an answer, or of the frames of a watch.
func negotiate(r *http.Request, stream bool) (format, error) {
	for _, c := range accepted(r) {
		as := kindOfView(c.params["as"])
		if as != plain && (c.params["g"] != metav1.GroupName || c.params["v"] != "v1") {
			continue
		}
		for _, info := range mediaTypes() {
			if !c.matches(info) || stream && info.StreamSerializer == nil || !as.fits(info) {
				continue
			}
			pretty, _ := strconv.ParseBool(r.URL.Query().Get("pretty"))
			return format{info, as, pretty}, nil
		}
	}
	return format{}, notAcceptable()
}

func (c clause) matches(info runtime.SerializerInfo) bool {
	return c.mediaType == info.MediaType || c.mediaType == anything || c.mediaType == info.MediaTypeType+"/*"
}

// fits reports whether a view exists in a format: the cells of a table are of any type, so it has no protobuf.
func (k kindOfView) fits(info runtime.SerializerInfo) bool {
	switch k {
	case plain, asMeta, asMetas:
		return true
	case asTable:
		return info.EncodesAsText
	default:
		return false
	}
}

func notAcceptable() error {
	return &statusError{
		code: http.StatusNotAcceptable, reason: metav1.StatusReasonNotAcceptable,
		message: "only the following media types are accepted: " + strings.Join(knownMediaTypes(), ", "),
	}
}

func knownMediaTypes() []string {
	var out []string
	for _, info := range mediaTypes() {
		out = append(out, info.MediaType)
	}
	return out
}

// statusError is an error for which apimachinery has no constructor.
type statusError struct {
	code    int
	reason  metav1.StatusReason
	message string
}

func (e *statusError) Error() string { return e.message }

func (e *statusError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: int32(e.code), Reason: e.reason, Message: e.message}
}

// write answers with an object.
func (f format) write(w http.ResponseWriter, code int, obj runtime.Object) {
	encoder := runtime.Encoder(f.Serializer)
	if f.pretty && f.PrettySerializer != nil {
		encoder = f.PrettySerializer
	}
	var body bytes.Buffer
	if err := encoder.Encode(obj, &body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", f.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // a client that is gone needs no answer
}

// bodyFormat returns the format of a request's body; JSON, if the client does not say.
func bodyFormat(r *http.Request) (runtime.SerializerInfo, error) {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return mediaTypes()[0], nil
	}
	mediaType, _, _ := mime.ParseMediaType(header) // a header that does not parse is not known either
	if info, ok := runtime.SerializerInfoForMediaType(mediaTypes(), mediaType); ok && mediaType != "" {
		return info, nil
	}
	return runtime.SerializerInfo{}, unsupportedMediaType(header, knownMediaTypes())
}

func unsupportedMediaType(got string, known []string) error {
	return &statusError{
		code: http.StatusUnsupportedMediaType, reason: metav1.StatusReasonUnsupportedMediaType,
		message: "the body of the request was in an unknown format (" + got + ") - accepted media types include: " +
			strings.Join(known, ", "),
	}
}
