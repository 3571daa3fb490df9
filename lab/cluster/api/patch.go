// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/lab/cluster/store"
)

// patch is a change in one of the patch formats.
type patch struct {
	kind   types.PatchType
	text   []byte // JSON
	strict strictness
	w      http.ResponseWriter // for warnings
}

var patchTypes = []string{
	string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType),
	string(types.ApplyYAMLPatchType),
}

// applyWarning describes the differences from server-side apply.
const applyWarning = "server-side apply merges fields, replaces lists and removes no fields here: they have no owners"

func readPatch(w http.ResponseWriter, r *request) (*patch, editOptions, error) {
	header := r.Header.Get("Content-Type")
	mediaType, _, _ := mime.ParseMediaType(header) // a header that does not parse is an unknown type, too
	p := &patch{kind: types.PatchType(mediaType), w: w}
	how, strict, err := writeOptions(r, p.kind)
	if !slices.Contains(patchTypes, mediaType) {
		return nil, how, unsupportedMediaType(header, patchTypes)
	}
	if err != nil {
		return nil, how, err
	}
	p.strict = strict
	if p.text, err = readBody(w, r.Request); err != nil {
		return nil, how, err
	}
	if p.kind == types.ApplyYAMLPatchType {
		warn(w, applyWarning)
		if p.text, err = yaml.YAMLToJSON(p.text); err != nil {
			return nil, how, apierrors.NewBadRequest("error decoding YAML: " + err.Error())
		}
		if how.status { // several controllers write their own conditions into it
			p.kind = types.StrategicMergePatchType
		}
	}
	return p, how, p.duplicates()
}

// duplicates returns the fields that occur twice in the patch.
func (p *patch) duplicates() error {
	var v any
	mistakes, err := kjson.UnmarshalStrict(p.text, &v, kjson.DisallowDuplicateFields)
	if err != nil {
		return apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	if err := p.strict.check(p.w, mistakes); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (s *Server) patch(w http.ResponseWriter, r *request) error {
	p, how, err := readPatch(w, r)
	if err != nil {
		return err
	}
	code := http.StatusOK
	result, err := r.resource.edit(r.key, how, func(old store.Object) (store.Object, error) {
		var obj runtime.Object
		var err error
		switch {
		case old != nil:
			obj, err = p.apply(old, r.resource.gvk)
		case p.kind == types.ApplyYAMLPatchType && r.sub == "":
			code = http.StatusCreated
			obj, err = decode(w, mediaTypes()[0].StrictSerializer, p.text, r.resource.gvk, p.strict)
		default:
			return nil, notFound(r.resource.gr(), r.key.Name)
		}
		if err != nil {
			return nil, err
		}
		out := obj.(store.Object)
		if old == nil && out.GetNamespace() == "" {
			out.SetNamespace(r.key.Namespace)
		}
		return out, sameKey(out, r.key)
	})
	return answer(w, r, code, result, err)
}

// apply returns the patched copy of an object.
func (p *patch) apply(old runtime.Object, gvk schema.GroupVersionKind) (runtime.Object, error) {
	var before bytes.Buffer
	if err := mediaTypes()[0].Serializer.Encode(old, &before); err != nil {
		return nil, err
	}
	after, err := p.applyJSON(before.Bytes(), gvk)
	if err != nil {
		return nil, err
	}
	into, err := scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	obj, got, err := mediaTypes()[0].StrictSerializer.Decode(after, &gvk, into)
	if strict, ok := runtime.AsStrictDecodingError(err); ok && obj != nil {
		err = p.strict.check(p.w, strict.Errors())
	}
	if got != nil && *got != gvk {
		err = fmt.Errorf("it makes a %s of a %s", got.Kind, gvk.Kind)
	}
	if err != nil {
		wrong := field.Invalid(field.NewPath("patch"), string(p.text), err.Error())
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{wrong})
	}
	return obj, nil
}

func (p *patch) applyJSON(before []byte, gvk schema.GroupVersionKind) ([]byte, error) {
	switch p.kind {
	case types.JSONPatchType:
		return p.operations(before)
	case types.MergePatchType, types.ApplyYAMLPatchType:
		// Of the lists in the specs that people apply, most are atomic, and the ports of a Service have keys that a
		// strategic merge does not know (two of one number). What their items leave out, the store completes.
		return asBadRequest(jsonpatch.MergePatch(before, p.text))
	default:
		typed, err := scheme().New(gvk)
		if err != nil {
			return nil, err
		}
		return asBadRequest(strategicpatch.StrategicMergePatch(before, p.text, typed))
	}
}

func asBadRequest(after []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

// operations applies a JSON patch (RFC 6902).
func (p *patch) operations(before []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(p.text)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after, err := operations.Apply(before)
	if err != nil {
		return nil, &statusError{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error()}
	}
	return after, nil
}
