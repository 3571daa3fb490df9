// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
)

// writeOptions reads the options that all writes but delete have in common.
func writeOptions(r *request, patch types.PatchType) (editOptions, strictness, error) {
	var o metav1.PatchOptions
	if err := decodeQuery(r, &o); err != nil {
		return editOptions{}, "", err
	}
	if errs := metav1validation.ValidatePatchOptions(&o, patch); len(errs) > 0 {
		kinds := map[string]string{http.MethodPost: "CreateOptions", http.MethodPut: "UpdateOptions"}
		return editOptions{}, "", invalidOptions(cmp.Or(kinds[r.Method], "PatchOptions"), errs)
	}
	return editOptions{status: r.sub == "status", dryRun: len(o.DryRun) > 0}, strictness(o.FieldValidation), nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (s *Server) create(w http.ResponseWriter, r *request) error {
	obj, how, err := objectInBody(w, r)
	if err != nil {
		return err
	}
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	result, err := r.resource.edit(store.KeyOf(obj), how, func(old store.Object) (store.Object, error) {
		if old != nil {
			return nil, apierrors.NewAlreadyExists(r.resource.gr(), obj.GetName())
		}
		return obj, nil
	})
	return answer(w, r, http.StatusCreated, result, err)
}

// objectInBody reads the object that a request carries, and puts it into the namespace of the URL.
func objectInBody(w http.ResponseWriter, r *request) (store.Object, editOptions, error) {
	how, strict, err := writeOptions(r, "")
	if err != nil {
		return nil, how, err
	}
	in, err := decodeBody(w, r.Request, r.resource.gvk, strict)
	if err != nil {
		return nil, how, err
	}
	obj := in.(store.Object)
	if obj.GetNamespace() == "" {
		obj.SetNamespace(r.key.Namespace)
	}
	return obj, how, sameKey(obj, store.Key{Namespace: r.key.Namespace, Name: obj.GetName()})
}

// sameKey checks that a request does not say one thing in its URL and another in its body.
func sameKey(o store.Object, url store.Key) error {
	if o.GetNamespace() != url.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the namespace of the provided object does not match the namespace sent on the request (%q, %q)",
			o.GetNamespace(), url.Namespace))
	}
	if o.GetName() != url.Name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", o.GetName(), url.Name))
	}
	return nil
}

func (s *Server) update(w http.ResponseWriter, r *request) error {
	obj, how, err := objectInBody(w, r)
	if err != nil {
		return err
	}
	if err := sameKey(obj, r.key); err != nil {
		return err
	}
	code := http.StatusOK
	result, err := r.resource.edit(r.key, how, func(old store.Object) (store.Object, error) {
		if old == nil {
			if !r.resource.upsert || obj.GetUID() != "" {
				return nil, notFound(r.resource.gr(), r.key.Name)
			}
			code = http.StatusCreated
		}
		return obj, nil
	})
	return answer(w, r, code, result, err)
}

// answer sends an object, unless there is an error.
func answer(w http.ResponseWriter, r *request, code int, obj store.Object, err error) error {
	if err != nil {
		return err
	}
	v, err := viewOf(r, false)
	if err != nil {
		return err
	}
	v.write(w, code, v.one(obj))
	return nil
}

// delete deletes an object. The answer is the object if it is still there, being deleted, or if its kind wants that,
// and else a Status.
func (s *Server) delete(w http.ResponseWriter, r *request) error {
	o, err := deleteOptions(w, r)
	if err != nil {
		return err
	}
	gone, err := r.remove(r.key, o)
	if err != nil {
		return err
	}
	if gone.GetDeletionTimestamp() != nil {
		if now, ok := r.resource.get(r.key); ok && now.GetUID() == gone.GetUID() || len(o.DryRun) > 0 {
			return answer(w, r, http.StatusOK, gone, nil)
		}
	}
	if r.resource.returnsDeleted() {
		return answer(w, r, http.StatusOK, gone, nil)
	}
	f, err := negotiate(r.Request, false)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: r.key.Name, Group: r.resource.gvk.Group, Kind: r.resource.plural, UID: gone.GetUID(),
		},
	})
	return nil
}

// remove deletes one object of the request's resource, if it is as the options say.
func (r *request) remove(k store.Key, o *metav1.DeleteOptions) (store.Object, error) {
	how := editOptions{
		dryRun: len(o.DryRun) > 0,
		delete: store.DeleteOptions{
			GracePeriod: o.GracePeriodSeconds, Propagation: ptr.Deref(o.PropagationPolicy, ""),
		},
	}
	return r.resource.edit(k, how, func(old store.Object) (store.Object, error) {
		if old == nil {
			return nil, notFound(r.resource.gr(), k.Name)
		}
		p := o.Preconditions
		if p != nil && p.UID != nil && *p.UID != old.GetUID() {
			return nil, r.precondition(k, "UID", string(*p.UID), string(old.GetUID()))
		}
		if p != nil && p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			return nil, r.precondition(k, "ResourceVersion", *p.ResourceVersion, old.GetResourceVersion())
		}
		return nil, nil
	})
}

func (r *request) precondition(k store.Key, what, want, is string) error {
	return apierrors.NewConflict(r.resource.gr(), k.Name,
		fmt.Errorf("the %s in the precondition (%s) does not match the %s in record (%s)", what, want, what, is))
}

// deleteOptions reads the options from the body or, if there is none, from the query.
func deleteOptions(w http.ResponseWriter, r *request) (*metav1.DeleteOptions, error) {
	info, err := bodyFormat(r.Request)
	if err != nil {
		return nil, err
	}
	data, err := readBody(w, r.Request)
	if err != nil {
		return nil, err
	}
	o := &metav1.DeleteOptions{}
	if len(data) > 0 {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		if _, _, err := info.Serializer.Decode(data, &kind, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := decodeQuery(r, o); err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	return o, nil
}

// deleteCollection deletes what selectors select, one by one.
func (s *Server) deleteCollection(w http.ResponseWriter, r *request) error {
	_, which, err := selectionOf(r)
	if err != nil {
		return err
	}
	o, err := deleteOptions(w, r)
	if err != nil {
		return err
	}
	v, err := viewOf(r, false)
	if err != nil {
		return err
	}
	all, _ := r.resource.list()
	var gone []store.Object
	for _, obj := range which.of(all) {
		old, err := r.remove(store.KeyOf(obj), o)
		if apierrors.IsNotFound(err) {
			continue // it went with another, or someone was faster
		}
		if err != nil {
			return err
		}
		gone = append(gone, old)
	}
	_, revision := r.resource.list()
	v.write(w, http.StatusOK, v.many(gone, revision))
	return nil
}
