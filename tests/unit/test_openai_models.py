"""The model list, as the official client reads it."""

from openai.types import Model

from appliance.api.openai.models import ServedModel, model_body, models_body


def test_a_model_has_openais_fields_and_its_context_length_under_both_names() -> None:
    body = model_body(ServedModel("local", 1_700_000_000, "appliance", 8192))
    model = Model.model_validate(body, strict=True)
    assert (model.id, model.created, model.owned_by, model.object) == ("local", 1_700_000_000, "appliance", "model")
    assert (body["context_length"], body["max_model_len"]) == (8192, 8192)


def test_a_model_that_is_not_loaded_has_no_context_length_yet() -> None:
    assert model_body(ServedModel("local", 1, "appliance", None))["max_model_len"] is None


def test_the_list_holds_every_model_in_the_given_order() -> None:
    models = [ServedModel(name, 1, "appliance", 1) for name in ("auto", "local")]
    assert models_body(models) == {"object": "list", "data": [model_body(model) for model in models]}
