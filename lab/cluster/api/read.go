// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/lab/cluster/store"
)

// read carries out get, list and watch.
func (s *Server) read(w http.ResponseWriter, r *request) error {
	if r.key.Name != "" {
		return s.get(w, r)
	}
	o, which, err := selectionOf(r)
	if err != nil {
		return err
	}
	if o.Watch {
		return s.watch(w, r, o, which)
	}
	return s.list(w, r, o, which)
}

func (s *Server) get(w http.ResponseWriter, r *request) error {
	obj, ok := r.resource.get(r.key)
	if !ok {
		return notFound(r.resource.gr(), r.key.Name)
	}
	return answer(w, r, http.StatusOK, obj, nil)
}

func (s *Server) list(w http.ResponseWriter, r *request, o *metav1.ListOptions, which selection) error {
	view, err := viewOf(r, false)
	if err != nil {
		return err
	}
	all, revision := r.resource.list()
	if err := reachable(o, revision); err != nil {
		return err
	}
	view.write(w, http.StatusOK, view.many(which.of(all), revision))
	return nil
}

// reachable returns an error unless the client asks for a list of the present revision. There are no others, nor pages.
func reachable(o *metav1.ListOptions, now uint64) error {
	if o.Continue != "" {
		return apierrors.NewResourceExpired("the provided continue parameter is too old: lists are not paged here")
	}
	asked, err := parseRevision(o.ResourceVersion)
	if err != nil {
		return err
	}
	if asked > now {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, now), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{
			{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"},
		}
		return err
	}
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != now {
		return apierrors.NewResourceExpired(
			fmt.Sprintf("The provided resource version is too old: %d (now %d)", asked, now))
	}
	return nil
}

func parseRevision(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: %v", s, err))
	}
	return n, nil
}

// view converts objects to the form that the client requested.
type view struct {
	format
	resource *resource
	rows     metav1.IncludeObjectPolicy // what the rows of a table hold besides their cells
}

// viewOf returns the view of an answer, or of the frames of a watch.
func viewOf(r *request, stream bool) (view, error) {
	f, err := negotiate(r.Request, stream)
	if err != nil {
		return view{}, err
	}
	v := view{format: f, resource: r.resource, rows: metav1.IncludeMetadata}
	switch policy := metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject")); policy {
	case "":
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		v.rows = policy
	default:
		return v, apierrors.NewBadRequest(fmt.Sprintf("includeObject: %q is not one of None, Metadata, Object", policy))
	}
	return v, nil
}

// one returns the view of a single object.
func (v view) one(o store.Object) runtime.Object {
	switch v.as {
	case asTable:
		return v.table([]store.Object{o}, o.GetResourceVersion())
	case asMeta, asMetas:
		return metaOf(o)
	default:
		return o
	}
}

// many returns the view of a list.
func (v view) many(objs []store.Object, revision uint64) runtime.Object {
	rv := strconv.FormatUint(revision, 10)
	switch v.as {
	case asTable:
		return v.table(objs, rv)
	case asMeta, asMetas:
		list := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{}}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		list.ResourceVersion = rv
		for _, o := range objs {
			list.Items = append(list.Items, *metaOf(o))
		}
		return list
	}
	list := v.resource.newList()
	items := make([]runtime.Object, len(objs))
	for i, o := range objs {
		items[i] = o
	}
	if err := meta.SetList(list, items); err != nil {
		panic(err) // a list that does not hold its own kind
	}
	list.(metav1.ListInterface).SetResourceVersion(rv)
	return list
}

func metaOf(o store.Object) *metav1.PartialObjectMetadata {
	out := meta.AsPartialObjectMetadata(o)
	out.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return out
}
