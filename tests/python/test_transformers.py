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


@pytest.mark.parametrize("padding", [0, 9])
@pytest.mark.parametrize("kind, options", [("Llama", {}), ("Mistral", {"sliding_window": 12}), ("Gemma2", {"sliding_window": 34})])
def test_static_caches_have_room_that_does_not_count(kind, options, padding):
    """Steps of 30, 9, 1 and 1 tokens into a cache of 56; with windows that it outgrows, in a layer of two or in all."""
    print("seed", torch.seed())
    model = model_of(kind, **options)
    tokens = torch.randint(2, 128, (2, 41), device=DEVICE)
    is_token = torch.ones_like(tokens)
    is_token[1, :padding] = 0
    found = {}
    with torch.no_grad():
        for implementation in ("eager", "tessera"):
            model.set_attn_implementation(implementation)
            cache = transformers.StaticCache(config=model.config, max_cache_len=56)
            steps = []
            for begin, end in ((0, 30), (30, 39), (39, 40), (40, 41)):
                mask = is_token[:, :end] if padding else None
                steps.append(model(tokens[:, begin:end], attention_mask=mask, past_key_values=cache).logits)
            found[implementation] = torch.cat(steps, 1)[is_token.bool()].double()
    own, ours = found["eager"], found["tessera"]
    assert torch.isfinite(ours).all()
    assert ((ours - own).norm() / own.norm()).item() < 0.01


def test_a_static_cache_in_a_compiled_model():
    """Attention is a call between two graphs, not traced."""
    print("seed", torch.seed())
    model = model_of("Llama")
    model.set_attn_implementation("tessera")
    tokens = torch.randint(2, 128, (2, 12), device=DEVICE)
    compiled = torch.compile(model, backend="eager")
    cache = transformers.StaticCache(config=model.config, max_cache_len=20)
    with torch.no_grad():
        whole = model(tokens, use_cache=False).logits
        first = model(tokens[:, :10], past_key_values=cache).logits
        steps = [compiled(tokens[:, at : at + 1], past_key_values=cache).logits for at in (10, 11)]
    assert ((torch.cat((first, *steps), 1) - whole).norm() / whole.norm()).item() < 0.01


def test_packed_sequences_do_not_see_each_other():
    print("seed", torch.seed())
    model = model_of("Mistral", sliding_window=9)
    tokens = torch.randint(2, 128, (1, 40), device=DEVICE)
    lengths = (17, 1, 22)
    places = torch.cat([torch.arange(3, length + 3, device=DEVICE) for length in lengths])[None]
    starts = torch.tensor([0, 17, 18, 40], device=DEVICE)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        parts = zip(tokens.split(lengths, 1), places.split(lengths, 1))
        alone = torch.cat([model(part, use_cache=False, position_ids=place).logits for part, place in parts], 1)
        model.set_attn_implementation("tessera")
        for options in (
            {"position_ids": places},
            {"position_ids": places, "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 22, "max_length_k": 22},
        ):
            packed = model(tokens, use_cache=False, **options).logits
            assert ((packed - alone).norm() / alone.norm()).item() < 0.01
        places[0, 17:] = torch.arange(20, 43, device=DEVICE)  # the same tensor, of one sequence now
        packed = model(tokens, use_cache=False, position_ids=places).logits
        model.set_attn_implementation("eager")
        whole = model(tokens, use_cache=False, position_ids=places).logits
        assert ((packed - whole).norm() / whole.norm()).item() < 0.01
        model.set_attn_implementation("tessera")
        cache = model(tokens, use_cache=True).past_key_values
        with pytest.raises(tessera.UnsupportedError, match="position_ids restart beside keys of a cache"):
            model(tokens[:, :4], past_key_values=cache, position_ids=torch.tensor([[0, 1, 0, 1]], device=DEVICE))


class Layer:
    def __init__(self, is_causal):
        self.is_causal = is_causal


def small_inputs(seqlen_k=24):
    print("seed", torch.seed())
    return (torch.randn(2, 2, length, 32, dtype=torch.float16, device=DEVICE) for length in (24, seqlen_k, seqlen_k))


def test_windows_of_bidirectional_layers_have_two_sides():
    q, k, v = small_inputs()
    rows = torch.arange(24, device=DEVICE)
    distance = rows[:, None] - rows[None]
    for is_causal, mask in ((False, distance.abs() < 5), (True, (distance < 5) & (distance >= 0))):
        o, _ = tessera.transformers.attention(Layer(is_causal), q, k, v, None, sliding_window=5)
        own = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask)
        assert (o.transpose(1, 2).double() - own).abs().max().item() < 0.01


def test_queries_count_all_where_keys_of_another_sequence_are_padded():
    q, k, v = small_inputs(seqlen_k=30)
    is_valid = torch.arange(30, device=DEVICE)[None] < torch.tensor([30, 11], device=DEVICE)[:, None]
    o, _ = tessera.transformers.attention(Layer(False), q, k, v, is_valid)
    own = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_valid[:, None, None])
    assert (o.transpose(1, 2).double() - own).abs().max().item() < 0.01


@pytest.mark.parametrize(
    "mask, options, message",
    [
        (torch.zeros(2, 1, 24, 24), {}, "no mask of 4 dimensions"),
        (torch.zeros(24), {}, "no mask of 1 dimensions"),
        (None, {"head_mask": torch.ones(2)}, "no 'head_mask'"),
        (None, {"position_bias": torch.zeros(1, 2, 24, 24)}, "no 'position_bias'"),
        (None, {"something_new": torch.zeros(1, 2, 24, 24)}, "no 'something_new'"),
        (None, {"cu_seq_lens_q": torch.tensor([0, 48])}, "cu_seq_lens_q and cu_seq_lens_k together"),
        (None, {"dropout": 0.1}, "no dropout"),
    ],
)
def test_what_no_kernel_has_is_refused(mask, options, message):
    q, k, v = small_inputs()
    with pytest.raises(tessera.UnsupportedError, match=message):
        tessera.transformers.attention(Layer(True), q, k, v, mask, **options)


def test_masks_that_are_neither_causal_nor_a_window_are_refused():
    masks = transformers.masking_utils
    sizes = {"batch_size": 1, "q_length": 8, "kv_length": 8}
    for known in (masks.causal_mask_function, masks.sliding_window_causal_mask_function(4), masks.bidirectional_mask_function):
        assert tessera.transformers.attention_mask(**sizes, mask_function=known) is None
    chunked = masks.and_masks(masks.chunked_overlay(4, torch.zeros(1, dtype=torch.int64)), masks.causal_mask_function)
    custom = masks.or_masks(masks.causal_mask_function, lambda batch, head, query, key: key < 3)
    for function, name in ((chunked, "chunked_overlay"), (custom, "or_masks")):
        with pytest.raises(tessera.UnsupportedError, match=f"no mask with '{name}'"):
            tessera.transformers.attention_mask(**sizes, mask_function=function)
    with pytest.raises(tessera.UnsupportedError, match="attention_mask has 5 tokens, the layer 8 keys"):
        tessera.transformers.attention_mask(**sizes, attention_mask=torch.ones(1, 5))


def test_gradients_and_dropout_are_refused():
    model = model_of("Llama")
    model.set_attn_implementation("tessera")
    with pytest.raises(tessera.UnsupportedError, match="no dropout and no gradients"):
        model(torch.ones((1, 4), dtype=torch.long, device=DEVICE))
