"""transformers' attention by tessera, against the model's own (eager) one. Skipped where PyTorch or transformers is not installed."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import tessera  # noqa: E402
import tessera.transformers  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
tessera.transformers.register()


def model_of(kind, **options):
    config = {
        "vocab_size": 128,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "initializer_range": 0.08,
        "pad_token_id": 0,
    }
    config = getattr(transformers, f"{kind}Config")(**config | options)
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(DEVICE, torch.float16).eval()


@pytest.mark.parametrize(
    "kind, options",
    [("Llama", {}), ("Mistral", {"sliding_window": 12}), ("Gemma2", {"sliding_window": 12, "attn_logit_softcapping": 5.0})],
)
@pytest.mark.parametrize("padding", [0, 9, 31])
def test_logits_are_the_models_own(kind, options, padding):
    print("seed", torch.seed())
    model = model_of(kind, **options)
    tokens = torch.randint(2, 128, (2, 40), device=DEVICE)
    is_token = torch.ones_like(tokens)
    is_token[1, :padding] = 0
    found = {}
    with torch.no_grad():
        for implementation in ("eager", "tessera"):
            model.set_attn_implementation(implementation)
            first = model(tokens[:, :30], attention_mask=is_token[:, :30], use_cache=True) if padding < 30 else None
            if first is None:
                found[implementation] = model(tokens, attention_mask=is_token).logits
            else:  # the rest as a second step over the cache
                rest = model(tokens[:, 30:], attention_mask=is_token, past_key_values=first.past_key_values)
                found[implementation] = torch.cat((first.logits, rest.logits), 1)
    where = is_token.bool()
    own, ours = (found[name][where].double() for name in ("eager", "tessera"))
    assert torch.isfinite(ours).all()
    assert ((ours - own).norm() / own.norm()).item() < 0.01


def test_gradients_and_dropout_are_refused():
    model = model_of("Llama")
    model.set_attn_implementation("tessera")
    with pytest.raises(tessera.UnsupportedError, match="no dropout and no gradients"):
        model(torch.ones((1, 4), dtype=torch.long, device=DEVICE))
